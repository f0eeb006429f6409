package pjrtrecord

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// TestVariable is the environment variable with the path of a Python that has JAX. Without it, tests of [XLA] are
// skipped.
const TestVariable = "CAGE_TEST_XLA"

// XLA is [Plugin], except that programs are executed: by XLA on CPU devices, in a separate process that starts when the
// device is opened. The process belongs to the plugin, and so only to the caller.
func XLA(t *testing.T, gpus int) (string, *Recorder) {
	t.Helper()
	python := os.Getenv(TestVariable)
	if python == "" {
		t.Skip("there is no XLA: make xla installs it, and sets " + TestVariable)
	}
	plugin, r := Plugin(t, gpus)
	t.Setenv(pythonVariable, python)
	t.Setenv(scriptVariable, filepath.Join(filepath.Dir(plugin), "testdata", "execute.py"))
	t.Setenv(faultsVariable, r.faults())
	t.Setenv(lingerVariable, "")
	t.Setenv(compileVariable, "")
	return plugin, r
}

// A Fault is a rule by which compilations or executions fail.
type Fault struct {
	At       Event  `json:"at"`
	Contains string `json:"contains"` // a text that the program must contain; empty: any program
	After    int    `json:"after"`    // how many such events succeed first
	Code     int    `json:"code"`     // PJRT error code
	Message  string `json:"message"`
	End      End    `json:"end"`
}

// Event is an event that can fail.
type Event string

// The events that can fail.
const (
	Compile Event = "compile"
	Execute Event = "execute"
)

// End is how it fails.
type End string

// The ends.
const (
	Fails       End = ""        // with an error
	LosesDevice End = "replica" // with an error of the last device only
	Dies        End = "kill"    // the process of XLA is killed
)

// Codes of PJRT errors.
const (
	ResourceExhausted = 8
	Internal          = 13
)

// Fail makes what XLA is asked from now on fail by these rules, instead of those before: none, and all goes well.
func (r *Recorder) Fail(t *testing.T, faults ...Fault) {
	t.Helper()
	text, err := json.Marshal(append([]Fault{}, faults...))
	if err == nil {
		err = os.WriteFile(r.faults()+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(r.faults()+".new", r.faults())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// faults is the file that has the rules.
func (r *Recorder) faults() string { return filepath.Join(r.dir, "faults.json") }
