package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// Limits of a download.
const (
	connectTimeout = 5 * time.Second  // an unreachable host must not hold up the next source
	headerTimeout  = 15 * time.Second // a host that accepts and says nothing
	stallTimeout   = 30 * time.Second // a body that stops
	maxAttempts    = 20               // resumptions; each must have brought bytes, or it is the last
)

// ErrChecksum means that all bytes came and are not the expected ones.
var ErrChecksum = errors.New("checksum mismatch")

// NewHTTPClient returns a client that gives up early on a host that cannot be
// reached, honours the proxy environment, and sets no limit on a whole download.
func NewHTTPClient() *http.Client {
	return &http.Client{Transport: &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: connectTimeout}).DialContext,
		TLSHandshakeTimeout:   connectTimeout,
		ResponseHeaderTimeout: headerTimeout,
		ForceAttemptHTTP2:     true,
	}}
}

// Download describes one file to be fetched over HTTP.
type Download struct {
	URL    string
	Part   string // file that collects the bytes; the next Run continues after what it holds
	SHA256 string // of the whole file, hexadecimal; required
	Size   int64  // bytes of the whole file; 0 if unknown

	Label    string       // what Progress calls the file
	Progress io.Writer    // nil for none
	Client   *http.Client // nil for NewHTTPClient
}

// Run fetches what Part does not hold yet and returns nil when Part is whole and
// its checksum is right. On any other error Part stays and the next Run resumes;
// on ErrChecksum it is removed. A connection that breaks is resumed as long as
// each attempt brings bytes.
func (d Download) Run(ctx context.Context) error {
	if len(d.SHA256) != hex.EncodedLen(sha256.Size) {
		return fmt.Errorf("no checksum is known for %s: refused", d.URL)
	}
	if d.Client == nil {
		d.Client = NewHTTPClient()
		defer d.Client.CloseIdleConnections()
	}
	resumed := partSize(d.Part) > 0
	if err := d.collect(ctx); err != nil {
		return err
	}
	err := CheckFile(d.Part, d.SHA256)
	if errors.Is(err, ErrChecksum) && resumed {
		// The beginning was an earlier attempt's, perhaps of another file.
		os.Remove(d.Part)
		if err := d.collect(ctx); err != nil {
			return err
		}
		err = CheckFile(d.Part, d.SHA256)
	}
	if errors.Is(err, ErrChecksum) {
		os.Remove(d.Part)
	}
	return err
}

// collect fetches until Part is whole.
func (d Download) collect(ctx context.Context) error {
	progress := NewProgress(d.Progress, d.Label, d.Size, partSize(d.Part))
	defer progress.Done()
	for range maxAttempts {
		before := partSize(d.Part)
		if d.Size > 0 && before == d.Size {
			return nil
		}
		if d.Size > 0 && before > d.Size {
			if err := os.Truncate(d.Part, 0); err != nil {
				return err
			}
			before = 0
		}
		err := d.attempt(ctx, before, progress)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if partSize(d.Part) == before {
			return err
		}
	}
	return fmt.Errorf("%s: the connection broke %d times; what came is kept, try again", d.URL, maxAttempts)
}

// attempt makes one request for the bytes from offset on and appends what comes.
func (d Download) attempt(ctx context.Context, offset int64, progress *Progress) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := time.AfterFunc(stallTimeout+headerTimeout, func() {
		cancel(fmt.Errorf("%s: no byte came for %v", d.URL, stallTimeout))
	})
	defer stall.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.URL, nil)
	if err != nil {
		return err
	}
	// Without this the transport may ask for gzip, and offsets would mean nothing.
	req.Header.Set("Accept-Encoding", "identity")
	if offset > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	res, err := d.Client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	flags := os.O_CREATE | os.O_WRONLY
	switch {
	case res.StatusCode == http.StatusPartialContent && strings.HasPrefix(res.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", offset)):
		flags |= os.O_APPEND
	case res.StatusCode == http.StatusOK:
		flags |= os.O_TRUNC
		offset = 0
	case res.StatusCode == http.StatusRequestedRangeNotSatisfiable && offset > 0:
		// We hold all, or bytes of something else; the checksum will tell.
		return nil
	default:
		return fmt.Errorf("GET %s: %s", d.URL, res.Status)
	}
	f, err := os.OpenFile(d.Part, flags, 0o644)
	if err != nil {
		return err
	}
	progress.Set(offset)
	body := io.Reader(&stallReader{res.Body, stall})
	if d.Size > 0 {
		body = io.LimitReader(body, d.Size-offset) // a host must not fill the disk
	}
	n, err := io.Copy(io.MultiWriter(f, progress), body)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	if err == nil && d.Size > 0 && offset+n < d.Size {
		err = fmt.Errorf("%s: it ended after %d of %d bytes", d.URL, offset+n, d.Size)
	}
	return errors.Join(err, f.Close())
}

// stallReader puts the stall timer off with each read that brings bytes.
type stallReader struct {
	r     io.Reader
	timer *time.Timer
}

func (s *stallReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if n > 0 {
		s.timer.Reset(stallTimeout)
	}
	return n, err
}

// CheckFile returns nil if the file's SHA-256 is want (hexadecimal), or an error
// that wraps ErrChecksum and names both sums.
func CheckFile(path, want string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); !strings.EqualFold(got, want) {
		return fmt.Errorf("%w: sha256 is %s, want %s", ErrChecksum, got, want)
	}
	return nil
}

// partSize returns the size of a file in bytes, 0 if there is none.
func partSize(path string) int64 {
	st, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return st.Size()
}
