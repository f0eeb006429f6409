// Package pjrtrecord simulates a CUDA device that computes nothing and records all calls to XLA.
// Thus programs for several GPUs can be tested on machines without a GPU.
//
// It compiles a small PJRT plugin, testdata/record.c, and therefore needs a C compiler. It also
// needs the build tag "cuda". Without either, tests are skipped. With [XLA], the plugin passes
// programs to a Python process, which compiles and executes them with XLA on one CPU device per
// simulated GPU.
package pjrtrecord

import (
	"embed"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
)

//go:embed testdata
var sources embed.FS

// Environment variables that configure the plugin.
const (
	DirectoryVariable = "CAGE_RECORD_DIR"
	DevicesVariable   = "CAGE_RECORD_DEVICES"
	pythonVariable    = "CAGE_RECORD_PYTHON"
	scriptVariable    = "CAGE_RECORD_SCRIPT"
	faultsVariable    = "CAGE_RECORD_FAULTS"
	lingerVariable    = "CAGE_RECORD_LINGER"
	compileVariable   = "CAGE_RECORD_COMPILE_ONLY"
	exactlyVariable   = "CAGE_RECORD_EXACTLY"
	memoryVariable    = "CAGE_RECORD_MEMORY"
)

// FaultVariable is the environment variable that injects a fault on a device that computes nothing;
// testdata/fault.c describes its values.
const FaultVariable = "CAGE_RECORD_FAULT"

// A Recorder gives access to a device's recorded calls.
type Recorder struct{ dir string }

// Open opens a CUDA device with the given number of simulated GPUs, and closes it when the test
// ends. Errors are those of [engine.Open]. Tests that use it must not run in parallel.
func Open(t *testing.T, gpus int, opts engine.Options) (*engine.Device, *Recorder, error) {
	t.Helper()
	plugin, r := Plugin(t, gpus)
	t.Setenv(engine.PluginPathVariable, plugin)
	d, err := engine.Open(device.CUDA, opts)
	if err != nil {
		return nil, nil, err
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, r, nil
}

// Plugin returns the path of the PJRT plugin, for tests that open the device themselves. The
// recorder is for a single device.
func Plugin(t *testing.T, gpus int) (string, *Recorder) {
	t.Helper()
	if !slices.Contains(engine.Built(), device.CUDA) {
		t.Skip("this build has no CUDA: it takes the tag cuda")
	}
	r := &Recorder{t.TempDir()}
	t.Setenv(DirectoryVariable, r.dir)
	t.Setenv(DevicesVariable, strconv.Itoa(gpus))
	t.Setenv(pythonVariable, "")
	t.Setenv(memoryVariable, "")
	t.Setenv(FaultVariable, "")
	return build(t), r
}

func build(t *testing.T) string {
	t.Helper()
	compiler := strings.Fields(ask(t, "env", "CC"))
	if len(compiler) == 0 {
		t.Skip("no C compiler")
	}
	if _, err := exec.LookPath(compiler[0]); err != nil {
		t.Skipf("no C compiler: %v", err)
	}
	headers := filepath.Join(ask(t, "list", "-m", "-f", "{{.Dir}}", "github.com/gomlx/go-xla"), "pjrt")
	dir := t.TempDir()
	if err := os.CopyFS(dir, sources); err != nil {
		t.Fatal(err)
	}
	plugin := filepath.Join(dir, "pjrt_cuda_record.so")
	arguments := append(compiler[1:], "-shared", "-fPIC", "-pthread", "-I", headers, "-o", plugin)
	code, err := filepath.Glob(filepath.Join(dir, "testdata", "*.c"))
	if err != nil {
		t.Fatal(err)
	}
	compile := exec.Command(compiler[0], append(arguments, code...)...)
	if text, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", compile, err, text)
	}
	return plugin
}

// ask runs the go command and returns its output.
func ask(t *testing.T, arguments ...string) string {
	t.Helper()
	command := exec.Command("go", arguments...)
	text, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return strings.TrimSpace(string(text))
}

// Programs returns the StableHLO of all compiled programs, in order of compilation.
func (r *Recorder) Programs(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(r.dir, "*.mlir"))
	if err != nil {
		t.Fatal(err)
	}
	programs := make([]string, len(paths)) // Glob sorts them.
	for i, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		programs[i] = string(text)
	}
	return programs
}

// Log returns the uploads and executions, one per line. A buffer is written as its number, counted
// from 0, "@" and the number of its device. "run 3: 1@0 -> 5@0; 2@1 -> 6@1; keep 0" means that
// program 3 ran on two devices, each with one argument and one result, and that the argument
// (number 0) was not donated.
func (r *Recorder) Log(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, "log"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// Memory sets the memory that each simulated GPU reports from now on, in bytes. If bytes is 0, they
// report none.
func (r *Recorder) Memory(t *testing.T, bytes int64) {
	t.Helper()
	t.Setenv(memoryVariable, strconv.FormatInt(bytes, 10))
}

// TestVariable is the environment variable with the path of a Python interpreter that has JAX.
// Without it, tests that use [XLA] are skipped.
const TestVariable = "CAGE_TEST_XLA"

// XLA is like [Plugin], but programs are executed by XLA on CPU devices. This happens in a separate
// process for each plugin, which starts when the device is opened.
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
	t.Setenv(exactlyVariable, "")
	return plugin, r
}

// Exactly limits XLA to as many devices as there are simulated GPUs. The results of one process are
// then bit-identical to those of several processes that have as many devices in total and have each
// called [XLA] with their own number of GPUs.
func Exactly(t *testing.T) { t.Setenv(exactlyVariable, "1") }

// A Fault is a rule that makes uploads, compilations or executions fail.
type Fault struct {
	At       Event  `json:"at"`
	Contains string `json:"contains"` // text that the program must contain; empty: any program
	After    int    `json:"after"`    // number of such events that succeed first
	Code     int    `json:"code"`     // PJRT error code
	Message  string `json:"message"`
	End      End    `json:"end"`
}

// Event is a kind of call that can fail.
type Event string

const (
	Upload  Event = "upload" // has no program
	Compile Event = "compile"
	Execute Event = "execute"
)

// End is the way in which an event fails.
type End string

const (
	Fails       End = ""        // with an error
	LosesDevice End = "replica" // with an error of the last device only
	Dies        End = "kill"    // the XLA process is killed
	Hangs       End = "hang"    // no answer until the next call of Fail, which ends the XLA process
)

// PJRT error codes.
const (
	ResourceExhausted = 8
	Internal          = 13
)

// Fail replaces the fault rules for later calls to XLA. Without rules, nothing fails.
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

// faults returns the path of the file with the fault rules.
func (r *Recorder) faults() string { return filepath.Join(r.dir, "faults.json") }
