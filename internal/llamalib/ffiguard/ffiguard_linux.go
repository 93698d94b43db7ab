package ffiguard

import "syscall"

const (
	file       = "libffi.so.8"
	skipEnv    = "TANDEM_SKIP_LIBFFI_CHECK"
	loaderList = "/etc/ld.so.cache"
	maxList    = 16 << 20 // bytes of the loader's list that are read
)

// folders are where the loader looks without being told, for the platforms in use.
var folders = []string{
	"/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib",
	"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu",
	"/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
}

func init() {
	if Present() {
		return
	}
	syscall.Write(2, []byte("tandem: "+Advice+"\n"))
	syscall.Exit(1)
}

// Present tells whether the dynamic loader will find libffi.
func Present() bool {
	if v, ok := syscall.Getenv(skipEnv); ok && v == "1" {
		return true
	}
	path, _ := syscall.Getenv("LD_LIBRARY_PATH")
	return present(path, loaderList, folders)
}

// present looks in the folders of path (separated by colons), in the loader's list
// and in folders. A listed library that is no longer there does not count.
func present(path, list string, folders []string) bool {
	for start, i := 0, 0; i <= len(path); i++ {
		if i == len(path) || path[i] == ':' {
			if i > start && exists(path[start:i]+"/"+file) {
				return true
			}
			start = i + 1
		}
	}
	for _, f := range folders {
		if exists(f + "/" + file) {
			return true
		}
	}
	return listed(read(list))
}

// listed finds a path that ends in our file name, between zero bytes, and is there.
func listed(list []byte) bool {
	start := 0
	for i, c := range list {
		if c != 0 {
			continue
		}
		entry := list[start:i]
		start = i + 1
		if n := len(entry) - len(file) - 1; n >= 0 && string(entry[n:]) == "/"+file {
			// The first entry may have binary fields before its path.
			for s := range entry {
				if entry[s] == '/' && exists(string(entry[s:])) {
					return true
				}
			}
		}
	}
	return false
}

func exists(path string) bool {
	var st syscall.Stat_t
	return syscall.Stat(path, &st) == nil
}

// read returns the content of a file, or nil.
func read(path string) []byte {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer syscall.Close(fd)
	var out []byte
	buf := make([]byte, 1<<16)
	for len(out) < maxList {
		n, err := syscall.Read(fd, buf)
		if n <= 0 || err != nil {
			break
		}
		out = append(out, buf[:n]...)
	}
	return out
}
