package rundir

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cage-qat/cage/internal/plaintoml"
)

// State is how far a run has come.
type State string

// The states of a run.
const (
	Done        State = "done"
	Running     State = "running"     // a process is training in it right now
	Interrupted State = "interrupted" // it ended or was killed, and can be continued
	Diverged    State = "diverged"    // it ended because the loss or gradient was not finite
	Failed      State = "failed"      // it ended with another error
	Unreadable  State = "unreadable"
)

// Run is what a run directory says about its run.
type Run struct {
	Dir      string
	State    State
	Err      string    // why it is unreadable, or the error with which it ended
	Modified time.Time // when its newest record was written

	config  []Entry
	results []Result
}

// Entry is a key of a run's configuration with its value in TOML.
type Entry struct{ Key, Value string }

// Result is a number of a run's summary, by its name there. The results of a run that is
// not done come from its newest record and its newest evaluation, and from the summary
// with which it stopped.
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
	i, ok := slices.BinarySearchFunc(r.results, name, func(a Result, name string) int { return strings.Compare(a.Name, name) })
	if !ok {
		return 0, false
	}
	return r.results[i].Value, true
}

// Names that [Run.Lookup] knows for every run.
const (
	dirName      = "run"
	stateName    = "state"
	modifiedName = "modified"
)

// Lookup returns what the run has under a name: "run", "state" or "modified", a number
// among its results, or a key of its configuration; strings are returned without quotes.
// A key such as quantizer.bits stands for both roles if they agree, or for the one role
// that is quantized.
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
	if rest, quantizer := strings.CutPrefix(name, "quantizer."); !ok && quantizer {
		value, ok = r.shared(rest)
	}
	return plain(value), ok
}

func (r *Run) entry(key string) (value string, ok bool) {
	i, ok := slices.BinarySearchFunc(r.config, key, func(a Entry, key string) int { return strings.Compare(a.Key, key) })
	if !ok {
		return "", false
	}
	return r.config[i].Value, true
}

// shared is a key of both quantizers.
func (r *Run) shared(key string) (value string, ok bool) {
	weights, ofWeights := r.entry("quantizer.weights." + key)
	activations, ofActivations := r.entry("quantizer.activations." + key)
	switch {
	case ofWeights && (!ofActivations || weights == activations):
		return weights, true
	case ofActivations && !ofWeights:
		return activations, true
	}
	return "", false
}

// plain is a TOML value without the quotes of a string.
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
	r.lookWhetherRunning()
	return r, nil
}

// lookWhetherRunning tells a run that is being trained from one that has stopped, which no
// file but the lock tells. Of a lock that may not be looked at nobody knows.
func (r *Run) lookWhetherRunning() {
	if r.State == Done || r.State == Unreadable {
		return
	}
	if locked, err := At(r.Dir).Lock().Locked(); err == nil && locked {
		r.State, r.Err = Running, ""
	}
}
