package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Mux is an http.ServeMux that says in the API's own form what it does not have: a
// wrong path or method is answered with an error object that names the routes there
// are, and GET / says what this is. Register every route through it.
type Mux struct {
	mux    *http.ServeMux
	what   string // this server, one sentence
	routes []string
}

// NewMux returns a Mux without routes but /.
func NewMux(what string) *Mux {
	m := &Mux{mux: http.NewServeMux(), what: what}
	m.mux.HandleFunc("/", m.rest)
	return m
}

// HandleFunc registers a pattern of http.ServeMux.
func (m *Mux) HandleFunc(pattern string, h http.HandlerFunc) { m.Handle(pattern, h) }

// Handle registers a pattern of http.ServeMux.
func (m *Mux) Handle(pattern string, h http.Handler) {
	m.mux.Handle(pattern, h)
	if !strings.Contains(pattern, " ") {
		pattern = "GET or POST " + pattern
	}
	m.routes = append(m.routes, pattern)
}

func (m *Mux) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.mux.ServeHTTP(w, r) }

// rest answers what no route takes.
func (m *Mux) rest(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		_ = WriteJSON(w, http.StatusOK, encode(map[string]any{"this_is": m.what, "routes": m.routes}))
		return
	}
	status, body := http.StatusNotFound, ErrorBody{Type: typeInvalid, Code: "not_found"}
	if allowed := m.methods(r); len(allowed) > 0 {
		status, body.Code = http.StatusMethodNotAllowed, "method_not_allowed"
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		body.Message = fmt.Sprintf("%s takes %s, not %.20s", show([]byte(r.URL.Path)), strings.Join(allowed, ", "), r.Method)
	} else {
		body.Message = fmt.Sprintf("there is no %.20s %s here", r.Method, show([]byte(r.URL.Path)))
	}
	body.Message += ". The routes are: " + strings.Join(m.routes, ", ")
	_ = WriteJSON(w, status, encode(errorEnvelope{body}))
}

// methods returns those with which the request's path has a route.
func (m *Mux) methods(r *http.Request) (allowed []string) {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		probe := &http.Request{Method: method, URL: r.URL, Host: r.Host}
		if _, pattern := m.mux.Handler(probe); pattern != "" && pattern != "/" {
			allowed = append(allowed, method)
		}
	}
	if slices.Contains(allowed, http.MethodGet) {
		allowed = append(allowed, http.MethodHead)
	}
	return allowed
}
