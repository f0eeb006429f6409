package serve

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
)

type runPage struct {
	Run     string
	Query   string // query that identifies the run in URLs
	Facts   factsView
	Samples samplesView
	Config  []rundir.Entry
}

// factsView holds the parts of a run's page, other than curves, that change while the run trains.
type factsView struct {
	Row         rowView
	Checkpoints []int // steps
	Results     []resultView
}

func (s *Server) runPage(run *rundir.Run) any {
	query := url.Values{"run": {run.Dir}}.Encode()
	return runPage{run.Dir, query, factsOf(run), s.samplesOf(run), run.Config()}
}

// part returns a handler that shows a run with a template; of returns the template's data.
func (s *Server) part(name string, of func(*rundir.Run) any) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		run := r.URL.Query().Get("run")
		list, _, err := s.find([]string{run})
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return clientErrorf(http.StatusNotFound, "there is no run %q", run)
		}
		return show(w, r, name, of(list[0]))
	}
}

func factsOf(run *rundir.Run) factsView {
	v := factsView{Row: rowOf(run, nil)}
	// If checkpoints cannot be listed, the rest of the page is still shown.
	if list, err := checkpoint.List(rundir.At(run.Dir).Checkpoints()); err == nil {
		v.Checkpoints = checkpoint.Steps(list)
	}
	for _, x := range run.Results() {
		if !metrics.Configured(x.Name) {
			label := metrics.Label(x.Name)
			v.Results = append(v.Results, resultView{x.Name, label, quantity(run, x.Name)})
		}
	}
	first := []string{"val_loss", "val_ppl", "train_loss", "error_rel", "error_norm2", "distance"}
	order := func(r resultView) int {
		if i := slices.Index(first, r.Name); i >= 0 {
			return i
		}
		return len(first)
	}
	slices.SortStableFunc(v.Results, func(a, b resultView) int { return order(a) - order(b) })
	return v
}

// resultView is a result as displayed: its name in filters, its label, and its value.
type resultView struct{ Name, Label, Value string }

// number formats a result with six significant digits; if it is an integer, with all digits.
func number(r *rundir.Run, name string) string {
	x, ok := r.Result(name)
	if !ok {
		return absent
	}
	return strings.ReplaceAll(metrics.Short(x), "-", "−")
}

// quantity formats a result like number, with thousands separators in integers.
func quantity(r *rundir.Run, name string) string {
	text := number(r, name)
	if len(text) < 5 || strings.Trim(text, "0123456789") != "" {
		return text
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
