package llamalib

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"path/filepath"
	"strings"

	"github.com/tandem-llm/tandem/internal/fetch"
)

// releaseHost is where upstream's releases are; a variable for the tests.
var releaseHost = "https://github.com"

// pinnedManifest is manifestSHA256; a variable for the tests.
var pinnedManifest = manifestSHA256

// maxManifest bounds the list of checksums, in bytes; it names some twenty files.
const maxManifest = 8 << 20

// upstream gets the binaries from the release page. A llama.cpp release has none
// of its own: it names a build, and a list of checksums, whose own digest is
// recorded in this package, ties the build's files to the release.
func (f *filler) upstream(ctx context.Context, src source, work, into string) (string, error) {
	client := fetch.NewHTTPClient()
	defer client.CloseIdleConnections()
	list := fmt.Sprintf("%s/%s/releases/download/%[3]s/%[3]s.json", releaseHost, builderRepo, Version)
	f.say("fetching llama.cpp %s from the upstream release", Version)
	raw, err := get(ctx, client, list)
	if err != nil {
		return "", err
	}
	if sum := sha256.Sum256(raw); hex.EncodeToString(sum[:]) != pinnedManifest {
		return "", fmt.Errorf("%w: the list of checksums at %s is %x, want %s", fetch.ErrChecksum, list, sum, pinnedManifest)
	}
	var manifest struct {
		Sources map[string]struct {
			Tag    string
			Assets map[string]struct{ SHA256 string }
		}
	}
	if err := json.Unmarshal(raw, &manifest); err != nil {
		return "", fmt.Errorf("the list of checksums at %s: %w", list, err)
	}
	from := manifest.Sources[src.repo]
	name := fmt.Sprintf(src.asset, from.Tag)
	sum := from.Assets[name].SHA256
	if sum == "" {
		return "", fmt.Errorf("the list of checksums at %s has none for %s of %s: refused", list, name, src.repo)
	}
	archive := filepath.Join(work, "release.tar.gz")
	err = fetch.Download{
		URL:  fmt.Sprintf("%s/%s/releases/download/%s/%s", releaseHost, src.repo, from.Tag, name),
		Part: archive, SHA256: sum, Label: name, Progress: f.progress, Client: client,
	}.Run(ctx)
	if err != nil {
		return "", err
	}
	err = unpack(archive, into, func(name string) bool {
		base := path.Base(name)
		return strings.HasPrefix(base, "lib") && strings.Contains(base, suffix())
	})
	return fmt.Sprintf("release %s of %s", from.Tag, src.repo), err
}

// get returns the body of a small file.
func get(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", url, res.Status)
	}
	return io.ReadAll(io.LimitReader(res.Body, maxManifest))
}
