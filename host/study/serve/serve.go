// Package serve shows runs while they train, as web pages for a single user on one machine: a table
// of the runs below some directories with their curves, and for each run its configuration, results
// and texts.
//
// The server renders the pages. They work without scripts; page/live.js only keeps them up to date.
// They load nothing from other sites and change nothing. Curves look as in a study's report
// (host/study/report), but the server thins them, so that a page stays fast however long a run is.
//
// Other users may have written the files of a run. So all text is escaped, no request names a file
// (requests name a run in the list), and requests for other host names are refused, so that no page
// of another site can read these pages through the browser.
package serve

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"hash/fnv"
	"html/template"
	"io/fs"
	"mime"
	"net"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cage-qat/cage/host/study/report"
	"github.com/cage-qat/cage/host/train/rundir"
)

// Server answers requests. It is created by [New].
type Server struct {
	host   string
	roots  []string
	logs   logs
	lister rundir.Lister

	mu     sync.Mutex
	listed []*rundir.Run
	at     time.Time // time of the listing
}

// New returns a server for the runs below some directories, which need not exist yet. host is a
// name under which the pages may be requested, in addition to localhost and IP addresses; it may be
// "". Nothing is read before the first request.
func New(host string, roots ...string) *Server {
	return &Server{host: host, roots: roots}
}

// policy makes browsers load only files of this server and run no inline scripts, so that text that
// is not escaped by mistake can do no harm.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// Handler returns the handler for the pages, whose paths begin at the root.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range map[string]handler{
		"GET /{$}":           s.index,
		"GET /table":         s.index,
		"GET /run":           s.part("run.gohtml", s.runPage),
		"GET /facts":         s.part("facts", func(run *rundir.Run) any { return factsOf(run) }),
		"GET /configuration": s.part("configuration", func(run *rundir.Run) any { return run.Config() }),
		"GET /samples":       s.part("samples", func(run *rundir.Run) any { return s.samplesOf(run) }),
		"GET /curves":        s.curves,
		"GET /assets/{name}": asset,
	} {
		mux.Handle(pattern, h)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		if !s.isOwnHost(r.Host) {
			http.Error(w, "this server does not answer under that host name: ask for it by "+
				"the IP address of the machine, or start cage serve with --listen NAME:PORT",
				http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// isOwnHost reports whether a request for host is meant for this server. A page of another site can
// make its own host name resolve to this machine (DNS rebinding), and could then read everything;
// it cannot do so with localhost or an IP address.
func (s *Server) isOwnHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	address, _, _ := strings.Cut(host, "%") // an IPv6 address may have a zone
	return strings.EqualFold(host, "localhost") || net.ParseIP(address) != nil ||
		s.host != "" && strings.EqualFold(host, s.host)
}

// runs lists the runs as they are now or were less than a second ago. The caller must not change
// them. A listing is not cancelled with its request, because later requests use it.
func (s *Server) runs() ([]*rundir.Run, error) {
	const listedFor = time.Second
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.at) < listedFor {
		return s.listed, nil
	}
	roots := slices.DeleteFunc(slices.Clone(s.roots), func(root string) bool {
		_, err := os.Stat(root)
		return errors.Is(err, fs.ErrNotExist)
	})
	list, err := s.lister.List(context.Background(), roots...)
	if err != nil {
		return nil, err
	}
	s.listed, s.at = list, time.Now()
	return list, nil
}

func (s *Server) find(names []string) (runs []*rundir.Run, missing []string, err error) {
	list, err := s.runs()
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		i := slices.IndexFunc(list, func(r *rundir.Run) bool { return r.Dir == name })
		if i >= 0 {
			runs = append(runs, list[i])
		} else {
			missing = append(missing, name)
		}
	}
	return runs, missing, nil
}

type handler func(w http.ResponseWriter, r *http.Request) error

func (f handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := f(w, r)
	if err == nil {
		return
	}
	code := http.StatusInternalServerError
	if client, ok := errors.AsType[*clientError](err); ok {
		code = client.code
	}
	http.Error(w, err.Error(), code) // as plain text, which browsers do not interpret
}

// clientError is an error caused by the request, with its HTTP status code.
type clientError struct {
	code int
	text string
}

func (e *clientError) Error() string { return e.text }

func clientErrorf(code int, format string, args ...any) error {
	return &clientError{code, fmt.Sprintf(format, args...)}
}

//go:embed page
var files embed.FS

var layout = template.Must(template.New("layout").ParseFS(files, "page/*.gohtml"))

func show(w http.ResponseWriter, r *http.Request, name string, data any) error {
	var b bytes.Buffer
	if err := layout.ExecuteTemplate(&b, name, data); err != nil {
		return err
	}
	return send(w, r, "text/html; charset=utf-8", b.Bytes())
}

// send responds with a body, or with 304 if the browser already has it.
func send(w http.ResponseWriter, r *http.Request, kind string, body []byte) error {
	h := fnv.New64a()
	h.Write(body)
	tag := fmt.Sprintf("\"%x\"", h.Sum64())
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("ETag", tag)
	if strings.Contains(r.Header.Get("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	_, _ = w.Write(body) // an error means that the client has disconnected
	return nil
}

// assets lists the files that pages load, by name.
var assets = map[string]struct {
	from fs.FS
	path string
}{
	"uplot.css": {report.Assets(), "uplot/uPlot.min.css"},
	"style.css": {report.Assets(), "style.css"},
	"live.css":  {files, "page/live.css"},
	"uplot.js":  {report.Assets(), "uplot/uPlot.iife.min.js"},
	"chart.js":  {report.Assets(), "chart.js"},
	"live.js":   {files, "page/live.js"},
}

func asset(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	a, ok := assets[name]
	if !ok {
		return clientErrorf(http.StatusNotFound, "there is no such file")
	}
	text, err := fs.ReadFile(a.from, a.path)
	if err != nil {
		return err
	}
	return send(w, r, mime.TypeByExtension(path.Ext(name)), text)
}
