package serve

import (
	"crypto/subtle"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"strings"

	"github.com/cage-qat/cage/host/study/report"
	"github.com/cage-qat/cage/host/train/rundir"
)

// policy lets a page load what this server has and nothing else, and run no script that
// stands in it: a text that was not escaped could do nothing.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// guard refuses what no page of this server asks for.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		if !s.isOwnHost(r.Host) {
			http.Error(w, "this page is not known under that name: ask for it by the IP address of the machine, or start cage serve with --listen NAME:PORT", http.StatusForbidden)
			return
		}
		if fromOtherSite(r) {
			http.Error(w, "a page of another site asks for this one: only links may lead here", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// fromOtherSite reports whether a page of another site made the browser send the request. It could
// not read the answer, but keep this server busy. A link may lead here from everywhere: then the
// browser shows the page in a window of its own, and does not fetch it beforehand.
func fromOtherSite(r *http.Request) bool {
	if r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document" && r.Header.Get("Sec-Purpose") == "" {
		return false
	}
	var sites http.CrossOriginProtection
	request := *r
	request.Method = http.MethodPost // it lets every GET pass
	return sites.Check(&request) != nil
}

// isOwnHost reports whether a request for a host is meant for this server. A page of another
// site can make its own name lead here (DNS rebinding), and would read everything; it
// cannot make a request for localhost or for an address look like one of its own.
func (s *Server) isOwnHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	address, _, _ := strings.Cut(host, "%") // an address of IPv6 may have a zone
	return strings.EqualFold(host, "localhost") || net.ParseIP(address) != nil || s.host != "" && strings.EqualFold(host, s.host)
}

// assets are the files that pages load, with where they are and what they hold.
var assets = map[string]struct {
	from fs.FS
	path string
	kind string
}{
	"uplot.css": {report.Assets(), "uplot/uPlot.min.css", "text/css; charset=utf-8"},
	"style.css": {report.Assets(), "style.css", "text/css; charset=utf-8"},
	"live.css":  {files, "page/live.css", "text/css; charset=utf-8"},
	"uplot.js":  {report.Assets(), "uplot/uPlot.iife.min.js", "text/javascript; charset=utf-8"},
	"chart.js":  {report.Assets(), "chart.js", "text/javascript; charset=utf-8"},
	"live.js":   {files, "page/live.js", "text/javascript; charset=utf-8"},
}

func asset(w http.ResponseWriter, r *http.Request) error {
	a, ok := assets[r.PathValue("name")]
	if !ok {
		return refuse(http.StatusNotFound, "there is no such file")
	}
	text, err := fs.ReadFile(a.from, a.path)
	if err != nil {
		return err
	}
	return send(w, r, a.kind, text)
}

// tokenHeader carries the token of those who may act. No page of another site can set it,
// nor make the browser do so.
const tokenHeader = "X-Cage-Token"

// maxForm bounds the body of a request.
const maxForm = 64 << 10

// requests are what a run can be asked for.
var requests = map[string]rundir.Request{"stop": rundir.Stop, "checkpoint": rundir.Checkpoint}

// ask passes a request on to a run that is being trained.
func (s *Server) ask(w http.ResponseWriter, r *http.Request) error {
	if s.token == "" || subtle.ConstantTimeCompare([]byte(r.Header.Get(tokenHeader)), []byte(s.token)) != 1 {
		return refuse(http.StatusForbidden, "open the page by the address that cage serve has printed: it holds a token without which nothing can be changed")
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return refuse(http.StatusBadRequest, "%v", err)
	}
	request, ok := requests[r.PostForm.Get("what")]
	if !ok {
		return refuse(http.StatusBadRequest, "a run cannot be asked for %q", r.PostForm.Get("what"))
	}
	list, err := s.runsNamed([]string{r.PostForm.Get("run")})
	if err != nil {
		return err
	}
	err = rundir.At(list[0].Dir).Ask(request)
	if errors.Is(err, rundir.ErrNotRunning) {
		return refuse(http.StatusConflict, "%v", err)
	}
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}
