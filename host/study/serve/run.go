package serve

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
)

// runPage is what the template run shows.
type runPage struct {
	Run     string
	Name    string // of the run as it is read
	Query   string // names the run in addresses
	Facts   factsView
	Samples samplesView
	Config  []rundir.Entry
}

// factsView is what changes of a run, without its curves.
type factsView struct {
	Row         rowView
	Checkpoints []int // steps
	Results     []resultView
	More        int // results that are not shown
}

func (s *Server) one(r *http.Request) (*rundir.Run, error) {
	list, err := s.runsNamed([]string{r.URL.Query().Get("run")})
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

func (s *Server) run(w http.ResponseWriter, r *http.Request) error {
	run, err := s.one(r)
	if err != nil {
		return err
	}
	return show(w, r, "run.gohtml", runPage{
		Run: run.Dir, Name: s.name(run.Dir), Query: url.Values{"run": {run.Dir}}.Encode(), Facts: s.factsOf(run), Samples: s.samplesOf(run), Config: run.Config(),
	})
}

func (s *Server) part(name string, of func(*rundir.Run) any) answer {
	return func(w http.ResponseWriter, r *http.Request) error {
		run, err := s.one(r)
		if err != nil {
			return err
		}
		return show(w, r, name, of(run))
	}
}

func (s *Server) factsOf(run *rundir.Run) factsView {
	v := factsView{Row: s.rowOf(run, nil)}
	if list, err := checkpoint.List(rundir.At(run.Dir).Checkpoints()); err == nil { // without any they cannot be shown, but all else can
		v.Checkpoints = checkpoint.Steps(list)
	}
	names, more := resultNames([]*rundir.Run{run})
	v.More = more
	for _, name := range names {
		v.Results = append(v.Results, resultView{name, metrics.Label(name), quantity(run, name)})
	}
	return v
}

// comparePage is what the template compare shows.
type comparePage struct {
	Title  string
	Query  string
	Runs   []rowView
	Tables []comparison
}

// comparison is a table with a column for each run.
type comparison struct {
	Title, Nothing string // Nothing is said where there are no rows
	Rows           []comparedRow
	More           int // rows that are not shown
}

type comparedRow struct {
	Name   string
	Values []string
}

func (s *Server) compare(w http.ResponseWriter, r *http.Request) error {
	names := r.URL.Query()["run"]
	if len(names) < 2 || len(names) > maxCurves {
		return refuse(http.StatusBadRequest, "choose from 2 to %d runs to compare them, not %d", maxCurves, len(names))
	}
	list, err := s.runsNamed(names)
	if err != nil {
		return err
	}
	p := comparePage{Title: fmt.Sprintf("%d runs", len(list)), Query: url.Values{"run": names}.Encode()}
	config := comparison{Title: "Configurations", Nothing: "Their configurations are the same."}
	differences, more, err := rundir.Diff(r.Context(), list, maxRows)
	if err != nil {
		return err
	}
	config.More = more
	for _, d := range differences {
		row := comparedRow{Name: d.Key}
		for _, v := range d.Values {
			if v != "" {
				v = strings.TrimSpace(v)
			} else {
				v = absent
			}
			row.Values = append(row.Values, v)
		}
		config.Rows = append(config.Rows, row)
	}
	states, results := comparedRow{Name: "state"}, comparison{Title: "Results"}
	for _, run := range list {
		p.Runs = append(p.Runs, s.rowOf(run, nil))
		states.Values = append(states.Values, string(run.State))
	}
	results.Rows = append(results.Rows, states)
	names, results.More = resultNames(list)
	for _, name := range names {
		row := comparedRow{Name: metrics.Label(name)}
		for _, run := range list {
			row.Values = append(row.Values, quantity(run, name))
		}
		results.Rows = append(results.Rows, row)
	}
	p.Tables = []comparison{config, results}
	if r.URL.Query().Get("part") != "" {
		return show(w, r, "compared", p)
	}
	return show(w, r, "compare.gohtml", p)
}

// resultView is a result as it is shown: its name in filters, what it is called, and its value.
type resultView struct{ Name, Label, Value string }

// firstResults come first in a list of results, in this order. The others follow in the order in
// which they are found.
var firstResults = []string{"val_loss", "val_ppl", "train_loss", "error_rel", "error_norm2", "distance"}

// maxRows limits the keys and results on a page. Only files that cage did not write have more.
const maxRows = 1000

// resultNames are those of the results of the runs, and how many more there are.
func resultNames(list []*rundir.Run) (names []string, more int) {
	known := map[string]bool{}
	for _, run := range list {
		for _, x := range run.Results() {
			if !known[x.Name] && !metrics.Configured(x.Name) {
				known[x.Name] = true
				names = append(names, x.Name)
			}
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return resultOrder(a) - resultOrder(b) })
	shown := min(len(names), maxRows)
	return names[:shown], len(names) - shown
}

func resultOrder(name string) int {
	if i := slices.Index(firstResults, name); i >= 0 {
		return i
	}
	return len(firstResults)
}

// number is a result with six digits, or all of a whole number.
func number(r *rundir.Run, name string) string {
	x, ok := r.Result(name)
	if !ok {
		return absent
	}
	return strings.ReplaceAll(metrics.Short(x), "-", "−")
}

// quantity is number with the thousands of large whole numbers set apart.
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
