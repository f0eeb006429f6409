package serve

import (
	"crypto/subtle"
	"errors"
	"net/http"

	"github.com/cage-qat/cage/host/train/rundir"
)

// tokenHeader carries the token of those who may act. No page of another site can set it,
// nor make the browser do so.
const tokenHeader = "X-Cage-Token"

// mostForm bounds the body of a request.
const mostForm = 64 << 10

// requests are what a run can be asked for.
var requests = map[string]rundir.Request{"stop": rundir.Stop, "checkpoint": rundir.Checkpoint}

// ask passes a request on to a run that is being trained.
func (s *Server) ask(w http.ResponseWriter, r *http.Request) error {
	if s.token == "" || subtle.ConstantTimeCompare([]byte(r.Header.Get(tokenHeader)), []byte(s.token)) != 1 {
		return refuse(http.StatusForbidden, "open the page by the address that cage serve has printed: it holds a token without which nothing can be changed")
	}
	r.Body = http.MaxBytesReader(w, r.Body, mostForm)
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
