// Package serve shows runs while they train, as web pages for one person on one machine:
// a table of the runs below some directories, growing curves, what a run is made of, and
// how two runs differ.
//
// The pages are made here and work without a script; the script in page/live.js only
// keeps them up to date. They load nothing from elsewhere. Curves are drawn as in the
// report of a study (host/study/report), but thinned out here, so that a page stays
// fast however long a run is.
//
// Runs are files that others may have written. So all text is escaped, no request names a
// file (it names a run in the list), and requests for other host names are refused, so
// that no other web page can read, through the browser, what is shown here. Whoever knows
// a token can ask runs to stop, or to save a checkpoint.
package serve

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"hash/fnv"
	"html/template"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cage-qat/cage/host/train/rundir"
)

// Options say what to show, and to whom.
type Options struct {
	// Roots are the directories with runs. A directory that does not exist yet has none.
	Roots []string
	// Host is a name under which the pages may be requested, in addition to localhost and
	// the addresses of the machine; "": there is none.
	Host string
	// Token allows those who know it to ask runs to stop, or to save a checkpoint; "":
	// nobody can.
	Token string
}

// Server answers requests. Create it with [New].
type Server struct {
	host, token string
	above       string // the directory that all roots with absolute names are in: pages leave it out, as every name would begin with it
	roots       []string
	logs        *logs
	lister      rundir.Lister

	mu      sync.Mutex
	listed  []*rundir.Run
	holders holders   // of the runs that are listed
	at      time.Time // when it was listed
}

// New makes a server. Nothing is read before the first request.
func New(o Options) *Server {
	var absolute []string
	for _, root := range o.Roots {
		if filepath.IsAbs(root) {
			absolute = append(absolute, filepath.Clean(root))
		}
	}
	return &Server{host: o.Host, token: o.Token, above: commonDir(absolute), roots: o.Roots, logs: newLogs()}
}

// commonDir returns the directory that all of some paths are in, with its separator; "" for none.
func commonDir(paths []string) string {
	if len(paths) == 0 {
		return ""
	}
	const separator = string(filepath.Separator)
	common := filepath.Dir(paths[0]) + separator
	for _, path := range paths {
		for !strings.HasPrefix(path, common) {
			common, _ = filepath.Split(strings.TrimSuffix(common, separator))
		}
	}
	return common
}

// name is a directory as pages call it.
func (s *Server) name(dir string) string { return cmp.Or(strings.TrimPrefix(dir, s.above), dir) }

// Handler returns the handler for requests of the pages, whose paths begin at the root.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, answer := range map[string]answer{
		"GET /{$}":           s.index,
		"GET /table":         s.table,
		"GET /run":           s.run,
		"GET /facts":         s.part("facts", func(run *rundir.Run) any { return s.factsOf(run) }),
		"GET /configuration": s.part("configuration", func(run *rundir.Run) any { return run.Config() }),
		"GET /samples":       s.part("samples", func(run *rundir.Run) any { return s.samplesOf(run) }),
		"GET /compare":       s.compare,
		"GET /curves":        s.curves,
		"GET /studies":       s.studies,
		"GET /report":        s.report,
		"POST /ask":          s.ask,
		"GET /assets/{name}": asset,
	} {
		mux.Handle(pattern, answer)
	}
	return s.guard(mux)
}

// listedFor is how long a list of runs is good for.
const listedFor = time.Second

// runs lists the runs as they are now, or were a moment ago. They must not be changed. A root that
// does not exist yet has no runs. Listing goes on to its end whoever is waiting, because what it
// has read is known to those who ask next.
func (s *Server) runs() ([]*rundir.Run, error) {
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
	s.listed, s.holders, s.at = list, holdersOf(list), time.Now()
	return list, nil
}

// held says who works on the cells of studies, as when the runs were listed last.
func (s *Server) held() holders {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holders
}

func (s *Server) runsNamed(names []string) ([]*rundir.Run, error) {
	runs, missing, err := s.find(names)
	if err == nil && len(missing) > 0 {
		err = refuse(http.StatusNotFound, "there is no run %q", missing[0])
	}
	return runs, err
}

// find returns the runs of these names, and the names that the list does not have.
func (s *Server) find(names []string) (runs []*rundir.Run, missing []string, err error) {
	list, err := s.runs()
	if err != nil {
		return nil, nil, err
	}
	byName := make(map[string]*rundir.Run, len(list))
	for _, r := range list {
		byName[r.Dir] = r
	}
	for _, name := range names {
		if r, ok := byName[name]; ok {
			runs = append(runs, r)
		} else {
			missing = append(missing, name)
		}
	}
	return runs, missing, nil
}

// answer is a handler that may fail.
type answer func(w http.ResponseWriter, r *http.Request) error

func (a answer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := a(w, r)
	if err == nil {
		return
	}
	code := http.StatusInternalServerError
	if refused, ok := errors.AsType[*refusal](err); ok {
		code = refused.code
	}
	http.Error(w, err.Error(), code) // as plain text, which is never taken for anything else
}

// refusal is an error that the client made.
type refusal struct {
	code int
	text string
}

func (r *refusal) Error() string { return r.text }

func refuse(code int, format string, args ...any) error {
	return &refusal{code, fmt.Sprintf(format, args...)}
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

// send answers with a body, or says that it is what the browser has already.
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
	_, _ = w.Write(body) // an error means that the client has gone
	return nil
}
