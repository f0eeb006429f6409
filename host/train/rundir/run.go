package rundir

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/schema"
)

// State is the state of a run.
type State string

// The states of a run.
const (
	Done        State = "done"
	Running     State = "running"     // a process is training it
	Interrupted State = "interrupted" // it ended or was killed, and can be resumed
	Diverged    State = "diverged"    // it ended because the loss or gradient was not finite
	Failed      State = "failed"      // it ended with another error
	Unreadable  State = "unreadable"
)

// Run describes a run as far as its run directory tells.
type Run struct {
	Dir      string
	State    State
	Err      string    // the reason why it is unreadable, or the error with which it ended
	Modified time.Time // time of the last change of its files

	config  []Entry
	results []Result
}

// Entry is a key of a run's configuration with its value in TOML.
type Entry struct{ Key, Value string }

// Result is a number of a run's summary or, if the run is not done, of its newest records, under
// its name in a summary.
type Result struct {
	Name  string
	Value float64
}

// Config returns the configuration, sorted by key. The quantizers of weights and of
// activations have separate entries.
func (r *Run) Config() []Entry { return r.config }

// Results returns the numbers, sorted by name.
func (r *Run) Results() []Result { return r.results }

// Result returns the number with that name.
func (r *Run) Result(name string) (float64, bool) {
	i, ok := slices.BinarySearchFunc(r.results, name, func(a Result, name string) int {
		return strings.Compare(a.Name, name)
	})
	if !ok {
		return 0, false
	}
	return r.results[i].Value, true
}

// Names that [Run.Lookup] accepts for every run.
const (
	dirName      = "run"
	stateName    = "state"
	modifiedName = "modified"
)

// Lookup returns the value of a name: "run", "state" or "modified", the name of a result, or a key
// of the configuration, as text without quotes. The value of a key such as quantizer.bits is the
// common value for weights and activations, or the only one.
func (r *Run) Lookup(name string) (text string, ok bool) {
	switch name {
	case dirName:
		return r.Dir, true
	case stateName:
		return string(r.State), true
	case modifiedName:
		return r.Modified.Local().Format(time.DateTime), true
	}
	if x, ok := r.Result(name); ok {
		return strconv.FormatFloat(x, 'g', -1, 64), true
	}
	value, ok := r.entry(name)
	if rest, quantizer := strings.CutPrefix(name, "quantizer."); !ok && quantizer { // of both roles
		weights, ofWeights := r.entry("quantizer.weights." + rest)
		activations, ofActivations := r.entry("quantizer.activations." + rest)
		switch {
		case ofWeights && (!ofActivations || weights == activations):
			value, ok = weights, true
		case ofActivations && !ofWeights:
			value, ok = activations, true
		}
	}
	return plain(value), ok
}

func (r *Run) entry(key string) (value string, ok bool) {
	i, ok := slices.BinarySearchFunc(r.config, key, func(a Entry, key string) int {
		return strings.Compare(a.Key, key)
	})
	if !ok {
		return "", false
	}
	return r.config[i].Value, true
}

// plain removes the quotes of a TOML string; it returns other values unchanged.
func plain(value string) string {
	if !strings.HasPrefix(value, `"`) {
		return value
	}
	parsed, _ := plaintoml.Value(value)
	if text, ok := parsed.(string); ok {
		return text
	}
	return value
}

// Open reads one run directory.
func Open(dir string) (*Run, error) {
	dir = filepath.Clean(dir)
	s, ok := stampsOf(dir, entry{})
	if !ok {
		if _, err := os.Stat(dir); err != nil {
			return nil, fmt.Errorf("there is no run directory %s", dir)
		}
		return nil, fmt.Errorf("%s is not a run directory: it has no run.toml", dir)
	}
	r := read(dir, s).run
	r.checkRunning()
	return r, nil
}

func (r *Run) checkRunning() {
	if r.State == Done || r.State == Unreadable {
		return
	}
	if locked, err := At(r.Dir).Lock().Locked(); err == nil && locked {
		r.State, r.Err = Running, ""
	}
}

// Condition is a condition on a run.
type Condition struct {
	Name  string // a name for [Run.Lookup]
	Op    string // one of = != < <= > >= ~
	Value string
}

// operators lists the operators of conditions, longer ones before their prefixes.
var operators = []string{"<=", ">=", "!=", "==", "=", "<", ">", "~"}

// ParseCondition parses NAME OP VALUE, such as "quantizer.bits=4", "val_loss<3" or
// "run~demo". Numbers are compared as numbers, and are less than any text; ~ tests for a
// substring. A run that does not have the name does not satisfy the condition.
func ParseCondition(text string) (Condition, error) {
	at := strings.IndexAny(text, "=<>!~")
	if at > 0 {
		for _, op := range operators {
			if rest, ok := strings.CutPrefix(text[at:], op); ok {
				if op == "==" {
					op = "="
				}
				return Condition{strings.TrimSpace(text[:at]), op, plain(strings.TrimSpace(rest))}, nil
			}
		}
	}
	return Condition{}, fmt.Errorf("%q is not a condition: "+
		"want NAME=VALUE, or != < <= > >= ~ in place of =", text)
}

// Holds reports whether run r satisfies the condition.
func (c Condition) Holds(r *Run) bool {
	text, ok := r.Lookup(c.Name)
	if !ok {
		return false
	}
	if c.Op == "~" {
		return strings.Contains(text, c.Value)
	}
	order, comparable := compare(text, c.Value)
	switch c.Op {
	case "=":
		return comparable && order == 0
	case "!=":
		return !comparable || order != 0
	case "<":
		return comparable && order < 0
	case "<=":
		return comparable && order <= 0
	case ">":
		return comparable && order > 0
	default:
		return comparable && order >= 0
	}
}

// compare orders two values: numbers by value, before texts. NaN has no order.
func compare(a, b string) (order int, ok bool) {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	switch {
	case errX != nil && errY != nil:
		return strings.Compare(a, b), true
	case errX != nil:
		return 1, true
	case errY != nil:
		return -1, true
	}
	return cmp.Compare(x, y), x == x && y == y
}

// Filter returns the runs that satisfy all conditions.
func Filter(list []*Run, conditions []Condition) []*Run {
	return slices.DeleteFunc(slices.Clone(list), func(r *Run) bool {
		return slices.ContainsFunc(conditions, func(c Condition) bool { return !c.Holds(r) })
	})
}

// Sort sorts runs by the value of a name for [Run.Lookup], descending if "-" precedes the name.
// Runs without the name, or with NaN, come last.
func Sort(list []*Run, by string) {
	name, descending := strings.CutPrefix(by, "-")
	rank := func(text string, ok bool) int {
		switch {
		case !ok:
			return 2
		case text == "NaN":
			return 1
		}
		return 0
	}
	slices.SortStableFunc(list, func(a, b *Run) int {
		x, okX := a.Lookup(name)
		y, okY := b.Lookup(name)
		if last := cmp.Compare(rank(x, okX), rank(y, okY)); last != 0 || !okX {
			return last
		}
		order, _ := compare(x, y)
		if descending {
			return -order
		}
		return order
	})
}

// Has reports whether [Run.Lookup] finds the name in any of the runs, or will when the run is done.
// If there are no runs, every name is valid.
func Has(list []*Run, name string) bool {
	later := slices.Contains(metrics.NumberNames(reflect.TypeFor[metrics.Summary]()), name)
	return len(list) == 0 || slices.ContainsFunc(list, func(r *Run) bool {
		_, ok := r.Lookup(name)
		return ok || later && r.State != Done && r.State != Unreadable
	})
}

// maxSuggested is the largest number of candidate names for a suggestion.
const maxSuggested = 10_000

// CheckName returns an error unless [Has] is true for the name. The error suggests a similar name.
func CheckName(list []*Run, name string) error {
	if Has(list, name) {
		return nil
	}
	names := map[string]bool{dirName: true, stateName: true, modifiedName: true}
	for _, r := range list {
		if len(names) >= maxSuggested {
			break
		}
		for _, e := range r.config {
			names[e.Key] = true
		}
		for _, e := range r.results {
			names[e.Name] = true
		}
	}
	err := fmt.Errorf("no run has %q", schema.Clipped(name, 100))
	if near := schema.Nearest(name, slices.Sorted(maps.Keys(names))); near != "" {
		err = fmt.Errorf("%w; did you mean %s?", err, near)
	}
	return err
}

// Search finds the files outside a run directory that its configuration names.
type Search struct {
	Run     string // the run directory
	WorkDir string // the working directory of the training process; "" if unknown
}

// Candidates lists where the file that the configuration calls path may be, most likely first: path
// relative to the working directory of this process, to that of the training process, and to the
// run directory. If path is absolute, it is the only candidate.
func (s Search) Candidates(path string) []string {
	list := []string{path}
	if filepath.IsAbs(path) {
		return list
	}
	known := []string{absolute(path)}
	for _, dir := range []string{s.WorkDir, s.Run} {
		if dir == "" {
			continue
		}
		if other := absolute(filepath.Join(dir, path)); !slices.Contains(known, other) {
			known, list = append(known, other), append(list, other)
		}
	}
	return list
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return filepath.Clean(path)
}

// Find returns the first of the Candidates for which use returns no error. If there is none, the
// error lists all candidates, and wraps the errors of use.
func (s Search) Find(path string, use func(candidate string) error) (string, error) {
	missing := &notFoundError{text: path + " was not found; looked for"}
	for _, candidate := range s.Candidates(path) {
		err := use(candidate)
		if err == nil {
			return candidate, nil
		}
		missing.text += "\n  " + absolute(candidate)
		if !errors.Is(err, fs.ErrNotExist) {
			missing.text += fmt.Sprintf(" (exists, but: %v)", err)
		}
		missing.reasons = append(missing.reasons, err)
	}
	return "", missing
}

type notFoundError struct {
	text    string
	reasons []error // one for each candidate
}

func (e *notFoundError) Error() string   { return e.text }
func (e *notFoundError) Unwrap() []error { return e.reasons }

// Names returns short names of run directories: the last element of their paths, or as many
// elements as are needed to distinguish them.
func Names(dirs []string) []string {
	paths, names := lists.Map(dirs, absolute), make([]string, len(dirs))
	shared := map[string]bool{"": true} // names of several directories
	for parts := 1; len(shared) > 0; parts++ {
		for i, path := range paths {
			if shared[names[i]] {
				all := strings.Split(strings.Trim(filepath.ToSlash(path), "/"), "/")
				names[i] = strings.Join(all[max(0, len(all)-parts):], "/")
			}
		}
		clear(shared)
		owner := map[string]string{}
		for i, name := range names {
			if other, taken := owner[name]; taken && other != paths[i] {
				shared[name] = true
			}
			owner[name] = paths[i]
		}
	}
	return names
}
