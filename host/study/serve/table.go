package serve

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
)

const (
	shownRuns  = 200 // that the table shows unless all are asked for
	keyColumns = 4   // keys of configurations that stand in the table
)

// indexPage is what the template index shows.
type indexPage struct {
	Title, Words, Sort string
	Panels             []panel
	Table              tableView
}

// tableView is what the template table shows.
type tableView struct {
	Columns []columnView
	Rows    []rowView
	Running int    // of all runs
	Found   int    // runs that fulfil the conditions
	All     int    // runs
	More    string // leads to all that were found; "": all are shown
	Wrong   string // what is wrong with the conditions, "" for nothing
}

type columnView struct {
	Name, Sorted, Link string // Sorted is as in aria-sort, "" for not
	Text               bool
}

type rowView struct {
	Run, Link, State, Err      string
	Steps, Total               string // Total is "" where it is not known
	Done                       int    // percent
	TrainLoss, ValLoss, Change string
	Keys                       []string
}

func (s *Server) index(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	t, err := s.view(r.Context(), q)
	if err != nil {
		return err
	}
	return show(w, r, "index.gohtml", indexPage{"Runs", q.Get("q"), q.Get("sort"), panels, t})
}

func (s *Server) table(w http.ResponseWriter, r *http.Request) error {
	t, err := s.view(r.Context(), r.URL.Query())
	if err != nil {
		return err
	}
	return show(w, r, "table", t)
}

// view makes the table that a query asks for: q are words and conditions, sort a name, and
// all is set where no run is to be left out.
func (s *Server) view(ctx context.Context, q url.Values) (tableView, error) {
	all, err := s.runs()
	if err != nil {
		return tableView{}, err
	}
	v := tableView{All: len(all)}
	for _, r := range all {
		v.Running += running(r)
	}
	list, err := search(all, q.Get("q"))
	if err != nil {
		v.Wrong = err.Error()
	}
	slices.SortStableFunc(list, func(a, b *rundir.Run) int { return running(b) - running(a) }) // what happens now comes first
	by := q.Get("sort")
	if name := strings.TrimPrefix(by, "-"); name != "" && rundir.Has(list, name) {
		rundir.Sort(list, by)
	}
	v.Found = len(list)
	if len(list) > shownRuns && q.Get("all") == "" {
		v.More = link(q, "all", "1")
		list = list[:shownRuns]
	}
	keys, err := rundir.Varying(ctx, list, keyColumns)
	if err != nil {
		return tableView{}, err
	}
	v.Columns = columnsOf(q, keys)
	for _, r := range list {
		v.Rows = append(v.Rows, rowOf(r, keys))
	}
	return v, nil
}

func running(r *rundir.Run) int {
	if r.State == rundir.Running {
		return 1
	}
	return 0
}

// search returns the runs that fulfil all conditions and have all words, in a list of its
// own. Conditions that are wrong are reported and do not count.
func search(list []*rundir.Run, text string) (found []*rundir.Run, wrong error) {
	var conditions []rundir.Condition
	var words []string
	unknown := ""
	for _, term := range rundir.Terms(text) {
		if strings.IndexAny(term, "=<>!~") <= 0 {
			words = append(words, strings.ToLower(term))
			continue
		}
		c, err := rundir.ParseCondition(term)
		switch {
		case err != nil:
			wrong = err
		case !rundir.Has(list, c.Name):
			unknown = c.Name
		default:
			conditions = append(conditions, c)
		}
	}
	if unknown != "" {
		wrong = rundir.Known(list, unknown)
	}
	return slices.DeleteFunc(slices.Clone(rundir.Filter(list, conditions)), func(r *rundir.Run) bool { return !has(r, words) }), wrong
}

// has reports whether the name, the state or the configuration of a run has all words.
func has(r *rundir.Run, words []string) bool {
	text := r.Dir + "\n" + string(r.State)
	for _, e := range r.Config() {
		text += "\n" + e.Key + "\n" + e.Value
	}
	text = strings.ToLower(text)
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}

// columnsOf are the headings, with links that sort: ascending, descending, by name.
func columnsOf(q url.Values, keys []string) []columnView {
	var out []columnView
	add := func(title, name string, text bool) {
		c := columnView{Name: title, Link: link(q, "sort", name), Text: text}
		switch q.Get("sort") {
		case name:
			c.Sorted, c.Link = "ascending", link(q, "sort", "-"+name)
		case "-" + name:
			c.Sorted, c.Link = "descending", link(q, "sort", "")
		}
		out = append(out, c)
	}
	add("run", "run", true)
	add("state", "state", true)
	add("steps", "steps", false)
	add(metrics.Label("train_loss"), "train_loss", false)
	add(metrics.Label("val_loss"), "val_loss", false)
	for _, key := range keys {
		add(key, key, true)
	}
	add("changed", "modified", true)
	return out
}

// link is the address of the list with one parameter changed; "" removes it.
func link(q url.Values, name, value string) string {
	out := url.Values{}
	for _, known := range []string{"q", "sort", "all"} {
		if v := q.Get(known); v != "" {
			out.Set(known, v)
		}
	}
	out.Set(name, value)
	if value == "" {
		out.Del(name)
	}
	if len(out) == 0 {
		return "/"
	}
	return "/?" + out.Encode()
}

// absent stands for what a run does not have.
const absent = "–"

func rowOf(r *rundir.Run, keys []string) rowView {
	v := rowView{
		Run: r.Dir, Link: "/run?" + url.Values{"run": {r.Dir}}.Encode(), State: string(r.State), Err: r.Err,
		Steps: number(r, "steps"), TrainLoss: number(r, "train_loss"), ValLoss: number(r, "val_loss"),
		Change: moment(r.Modified, time.Now()),
	}
	if steps, _ := r.Result("steps"); steps >= 0 {
		if text, ok := r.Lookup("train.steps"); ok {
			v.Total = text
			if total, err := strconv.ParseFloat(text, 64); err == nil && total > 0 {
				v.Done = int(math.Min(100, 100*steps/total))
			}
		}
	}
	for _, key := range keys {
		text, _ := r.Lookup(key)
		v.Keys = append(v.Keys, cmp.Or(text, absent))
	}
	return v
}

// moment is a time as it is read now.
func moment(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format("2006-01-02 15:04")
}
