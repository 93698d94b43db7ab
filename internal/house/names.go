package house

import (
	"bytes"
	"regexp"
)

// hosts are package registries. Everybody has their own mirror of them, set up in
// their package client. Spelled so that this file does not name them.
var hosts = []string{
	"registry" + ".npmjs.org", "registry" + ".yarnpkg.com", "pypi" + ".org", "pythonhosted" + ".org", "proxy.golang" + ".org",
	"sum.golang" + ".org", "crates" + ".io", "repo1.maven" + ".org", "deb.debian" + ".org", "archive.ubuntu" + ".com",
}

// folders are beginnings of paths that exist on one machine only.
var folders = regexp.MustCompile("(^|[^\\w./])/(work|root|home/" + `\w+|Users/\w+)/\w|/tmp/` + "(slot|bash_)")

func names(t *Tree, report func(*File, int, string)) {
	for _, f := range t.Files {
		for i, line := range bytes.Split(f.Text, []byte("\n")) {
			for _, h := range hosts {
				if bytes.Contains(line, []byte(h)) {
					report(f, i+1, h+": use the package's name and the user's own client")
				}
			}
			if m := folders.Find(line); m != nil {
				report(f, i+1, "a path of one machine: "+string(m))
			}
		}
	}
}
