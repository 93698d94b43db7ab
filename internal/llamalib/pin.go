package llamalib

import (
	"fmt"
	"runtime"
)

// The pair this build is made for. They change together, with the checksums below.
const (
	Version     = "v0.5.0"  // llama.cpp's release
	YzmaVersion = "v1.28.0" // the Go binding's, as in go.mod
)

// EnvDir names the environment variable that holds a library directory.
const EnvDir = "TANDEM_LLAMA_LIB"

// npmVersion is the version of the npm packages that carry llama.cpp v0.5.0.
const npmVersion = "3.22.1"

// manifestSHA256 is the digest of the list of checksums that belongs to the
// upstream binaries of llama.cpp v0.5.0, as yzma v1.28.0 records it.
const manifestSHA256 = "4c980eec03f12db33a8de414cbd9b2afecfe996c8c1daac63e16b074d2ffc5ab"

// source says where the libraries of one platform come from.
type source struct {
	npmPackage   string // npm package, at npmVersion
	npmFolder    string // folder below bins/ in it
	npmIntegrity string // subresource integrity of its tarball; empty: none is recorded, so it is not used

	repo  string // upstream repository as the list of checksums names it
	asset string // name of its release asset, %s is the tag; empty: none that can be unpacked
}

const (
	upstreamRepo = "ggml-org/llama.cpp"
	builderRepo  = "hybridgroup/llama-cpp-builder" // builds what upstream does not
)

// sources is keyed by GOOS/GOARCH. The npm packages for macOS exist, but version
// 3.22.1 of them was not to be had when this table was made.
var sources = map[string]source{
	"linux/amd64": {
		"@node-llama-cpp/linux-x64", "linux-x64",
		"sha512-5uCCDNqWCNfaAm8aR/Uzxbo4HBpKgNF91kCHPepKhgMgV2OAmatoefbOlMihsqCiH2Od35E/eUHQCFbfRBJuOg==",
		upstreamRepo, "llama-%s-bin-ubuntu-x64.tar.gz",
	},
	"linux/arm64": {
		"@node-llama-cpp/linux-arm64", "linux-arm64",
		"sha512-W+7naKCXX9/eEjjFmRS8vvx91QyLXDbeFxexZc3bh/PtQABZgmRL3C0AtYYXn4YGTj/3Qor4lWZn2tpjZFPLdQ==",
		builderRepo, "llama-%s-bin-ubuntu-cpu-arm64.tar.gz",
	},
	"darwin/arm64": {"@node-llama-cpp/mac-arm64-metal", "mac-arm64-metal", "", upstreamRepo, "llama-%s-bin-macos-arm64.tar.gz"},
	"darwin/amd64": {"@node-llama-cpp/mac-x64", "mac-x64", "", upstreamRepo, "llama-%s-bin-macos-x64.tar.gz"},
}

// platform returns the key of sources for this machine.
func platform() string { return runtime.GOOS + "/" + runtime.GOARCH }

// cacheName returns the name of the cache entry: "v0.5.0-linux-amd64".
func cacheName() string { return fmt.Sprintf("%s-%s-%s", Version, runtime.GOOS, runtime.GOARCH) }

// suffix returns the file name suffix of shared libraries.
func suffix() string {
	if runtime.GOOS == "darwin" {
		return ".dylib"
	}
	return ".so"
}
