package fault

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// registryClient asks prefill's own registry.
var registryClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: dialTimeout}

// maxRegistry bounds a body either way, as the registry's own limit does.
const maxRegistry = 64 << 10

// route answers as prefill's registry does, with the proxy's addresses.
func (p *Proxy) route(w http.ResponseWriter, r *http.Request) {
	in, err := io.ReadAll(io.LimitReader(r.Body, maxRegistry))
	if err != nil {
		return
	}
	if !p.exchange(w, r, ToPrefill, in, func([]byte) {}) {
		return
	}
	u := *r.URL
	u.Scheme, u.Host = "http", p.target.Registry
	q, err := http.NewRequestWithContext(r.Context(), r.Method, u.String(), bytes.NewReader(in))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	resp, err := registryClient.Do(q)
	if err != nil { // as a port on which nobody listens
		hangUp(w)
		return
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(io.LimitReader(resp.Body, maxRegistry))
	if err != nil {
		hangUp(w)
		return
	}
	out = p.readdress(out)
	p.exchange(w, r, ToDecode, out, func(b []byte) {
		w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
		w.Header().Set("Content-Length", strconv.Itoa(len(out)))
		w.WriteHeader(resp.StatusCode)
		_, _ = w.Write(b)
	})
}

// exchange is the question or the answer, with its fault. It says whether the other
// side is to hear of it.
func (p *Proxy) exchange(w http.ResponseWriter, r *http.Request, d Dir, b []byte, pass func([]byte)) bool {
	i, lost := p.judge(Frame{Point: Point{Registry, d, "ROUTE"}, Size: len(b), bytes: b})
	if lost {
		<-r.Context().Done()
		return false
	}
	if i == nil {
		pass(b)
		return true
	}
	switch i.rule.Do {
	case Drop, Hole, HalfOpen:
		<-r.Context().Done()
		return false
	case Delay, Hold:
		var until <-chan time.Time
		if i.rule.Do == Delay {
			timer := time.NewTimer(i.rule.Delay)
			defer timer.Stop()
			until = timer.C
		}
		select {
		case <-until:
		case <-i.free:
		case <-r.Context().Done():
			return false
		}
		pass(b)
	case Truncate, Cut:
		if len(b) > 0 {
			pass(b[:i.rule.at(len(b))])
		}
		hangUp(w)
		return false
	case Flip:
		if len(b) > 0 {
			b = slices.Clone(b)
			b[i.rule.at(len(b))] ^= 1
		}
		pass(b)
	case Reset:
		hangUp(w)
		return false
	default: // once more or in another order: of one question there is one answer
		pass(b)
	}
	return true
}

// hangUp ends the connection without another byte.
func hangUp(w http.ResponseWriter) {
	_ = http.NewResponseController(w).Flush()
	if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
		if t, ok := c.(*net.TCPConn); ok {
			_ = t.SetLinger(0)
		}
		c.Close()
	}
}

// readdress puts the proxy's control address into a rank's answer; other bodies stay.
func (p *Proxy) readdress(body []byte) []byte {
	var m map[string]any
	if json.Unmarshal(body, &m) != nil || m["rank_port"] == nil {
		return body
	}
	m["rank_ip"], m["rank_port"] = "127.0.0.1", p.Port(Control)
	if m["control_addr"] != nil {
		m["control_addr"] = p.addr(Control)
	}
	out, err := json.Marshal(m)
	if err != nil {
		return body
	}
	return out
}
