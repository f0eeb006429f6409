package serve

import (
	"cmp"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/lists"
)

const (
	shownRuns  = 200 // rows of the table unless all are requested
	keyColumns = 4   // configuration keys that have a column
)

type indexPage struct {
	Title, Words, Sort string
	Panels             []panel
	Table              tableView
}

type tableView struct {
	Columns []columnView
	Rows    []rowView
	Running int    // number of all running runs
	Found   int    // number of runs that satisfy the conditions
	All     int    // number of all runs
	More    string // link to all runs that were found; "" if all are shown
	Wrong   string // error in the conditions, "" if there is none
}

type columnView struct {
	Name, Sorted, Link string // Sorted is the value of aria-sort, "" for none
	Text               bool
}

type rowView struct {
	Run, Link, State, Err      string
	Steps, Total               string // Total is "" if it is unknown
	Done                       int    // percent
	TrainLoss, ValLoss, Change string
	Keys                       []string
}

func (s *Server) index(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	t, err := s.view(q)
	if err != nil {
		return err
	}
	if r.URL.Path == "/table" {
		return show(w, r, "table", t)
	}
	return show(w, r, "index.gohtml", indexPage{"Runs", q.Get("q"), q.Get("sort"), panels, t})
}

// view makes the table for a query, in which q holds words and conditions and sort names a column.
// If all is set, all runs are listed.
func (s *Server) view(q url.Values) (tableView, error) {
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
	// Runs that are still running come first.
	slices.SortStableFunc(list, func(a, b *rundir.Run) int { return running(b) - running(a) })
	by := q.Get("sort")
	if name := strings.TrimPrefix(by, "-"); name != "" && rundir.Has(list, name) {
		rundir.Sort(list, by)
	}
	v.Found = len(list)
	if len(list) > shownRuns && q.Get("all") == "" {
		v.More = link(q, "all", "1")
		list = list[:shownRuns]
	}
	keys := rundir.Varying(list, keyColumns)
	v.Columns = columnsOf(q, keys)
	v.Rows = lists.Map(list, func(r *rundir.Run) rowView { return rowOf(r, keys) })
	return v, nil
}

func running(r *rundir.Run) int {
	if r.State == rundir.Running {
		return 1
	}
	return 0
}

// search returns a new list of the runs that satisfy all conditions and contain all words. Invalid
// conditions are ignored, and reported in wrong.
func search(list []*rundir.Run, text string) (found []*rundir.Run, wrong error) {
	var conditions []rundir.Condition
	var words []string
	unknown := ""
	for _, term := range strings.Fields(text) {
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
		wrong = rundir.CheckName(list, unknown)
	}
	found = slices.Clone(rundir.Filter(list, conditions))
	return slices.DeleteFunc(found, func(r *rundir.Run) bool { return !containsAll(r, words) }), wrong
}

func containsAll(r *rundir.Run, words []string) bool {
	if len(words) == 0 {
		return true
	}
	var all strings.Builder
	all.WriteString(r.Dir + "\n" + string(r.State))
	for _, e := range r.Config() {
		all.WriteString("\n" + e.Key + "\n" + e.Value)
	}
	text := strings.ToLower(all.String())
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}

// columnsOf returns the column headings. Their links sort ascending, then descending, then by name.
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

// link returns the URL of the list with one parameter changed or, if value is "", removed.
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

const absent = "–"

func rowOf(r *rundir.Run, keys []string) rowView {
	v := rowView{
		Run: r.Dir, Link: "/run?" + url.Values{"run": {r.Dir}}.Encode(),
		State: string(r.State), Err: r.Err,
		Steps: number(r, "steps"), TrainLoss: number(r, "train_loss"), ValLoss: number(r, "val_loss"),
		Change: study.TimeText(r.Modified, time.Now()),
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
