package pjrtrecord_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/host/testing/pjrtrecord"
	"github.com/cage-qat/cage/host/train/processes"
	"github.com/cage-qat/cage/internal/vfs"
)

// placeVariable is the environment variable with the place of a process. Without it,
// TestPartOfProcesses is skipped.
const placeVariable = "CAGE_TEST_PLACE"

// runVariable is the environment variable with the run directory of these processes.
const runVariable = "CAGE_TEST_RUN"

// TestPartOfProcesses is run by each process of TestProcesses. It sums the rows of a matrix, of
// which each device has one.
func TestPartOfProcesses(t *testing.T) {
	source := os.Getenv(placeVariable)
	if source == "" {
		t.Skip("it is started by TestProcesses")
	}
	place, err := processes.Find(source, os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	group, err := processes.Join(t.Context(), place,
		processes.Run{Dir: vfs.At(os.Getenv(runVariable))})
	if err != nil {
		t.Fatal(err)
	}
	const count, width = 4, 3
	d, err := engine.Open(device.CUDA, engine.Options{Count: count, Processes: group})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	inputs := []engine.Spec{{Name: "x", Shape: shapes.Make(shapes.Float32, 1, width), Sharded: true},
		{Name: "y", Shape: shapes.Make(shapes.Float32, width), Donated: true}}
	sum, err := d.Compile("sum", inputs, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.Add(graph.AllReduce(graph.ReduceSum(in[0], 0), graph.Sum), in[1])}
	})
	if err != nil {
		t.Fatal(err)
	}
	x, err := engine.UploadSharded(d, []float32{0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32}, true,
		count, width)
	if err != nil {
		t.Fatal(err)
	}
	y, err := engine.Upload(d, []float32{100, 200, 300}, width)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the result is donated to the next call
		out, err := sum.Run([]*engine.Buffer{x, y}, []bool{false, true})
		if err != nil {
			t.Fatal(err)
		}
		y = out[0]
	}
	got, err := engine.Download[float32](y)
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv(pjrtrecord.TestVariable) != "" && !slices.Equal(got, []float32{220, 328, 436}) {
		t.Errorf("process %d has the sums %v", place.Rank, got)
	}
	if _, err := engine.Download[float32](x); err == nil ||
		!strings.Contains(err.Error(), "other processes hold parts of the tensor") {
		t.Errorf("a buffer of all processes was downloaded: %v", err)
	}
	if _, err := group.Agree("end", 0); err != nil {
		t.Fatal(err)
	}
	group.Leave(nil)
}

// TestProcesses checks that the plugins of two processes can exchange values through cage, that
// each process has its part of an upload, and that each runs the program for all devices. With XLA,
// the sums must be over all devices.
func TestProcesses(t *testing.T) {
	plugin, _ := pjrtrecord.Plugin(t, 2)
	if os.Getenv(pjrtrecord.TestVariable) != "" {
		plugin, _ = pjrtrecord.XLA(t, 2)
	}
	t.Setenv(engine.PluginPathVariable, plugin)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	dir := t.TempDir()
	run := func(rank int, gpus, directory string) *exec.Cmd {
		cmd := exec.Command(os.Args[0], "-test.run=^TestPartOfProcesses$", "-test.v")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d/2@%s", placeVariable, rank, address),
			runVariable+"="+dir, pjrtrecord.DevicesVariable+"="+gpus,
			pjrtrecord.DirectoryVariable+"="+directory)
		return cmd
	}
	for _, c := range []struct {
		first, second string
		says          []string // want one of these messages
	}{
		{"2", "2", nil},
		// The process that detects this first stops the other.
		{"2", "3", []string{"4 replicas need 2 GPU(s) in each process, but this one has 3",
			"the processes have 5 GPUs together, want 4"}},
	} {
		dirs := []string{t.TempDir(), t.TempDir()}
		first, second := run(0, c.first, dirs[0]), run(1, c.second, dirs[1])
		texts := make(chan string, 1)
		go func() {
			text, _ := first.CombinedOutput()
			texts <- string(text)
		}()
		text, err := second.CombinedOutput()
		other := <-texts
		if c.says != nil {
			if err == nil || !slices.ContainsFunc(c.says,
				func(says string) bool { return strings.Contains(string(text)+other, says) }) {
				t.Errorf("%v, want one of %q: %s\n%s", err, c.says, other, text)
			}
			continue
		}
		if err != nil || !first.ProcessState.Success() ||
			!strings.Contains(other, "--- PASS: TestPartOf") {
			t.Fatalf("%s\n%v: %s", other, err, text)
		}
		for rank, dir := range dirs {
			log, err := os.ReadFile(dir + "/log")
			if err != nil {
				t.Fatal(err)
			}
			at := 2 * rank // the number of its first device
			want := fmt.Sprintf("run 0: 0@%d 2@%d -> 4@%d; 1@%d 3@%d -> 5@%d; keep 0 2\n", at, at, at, at+1,
				at+1, at+1)
			if !strings.Contains(string(log), want) {
				t.Errorf("process %d: %s, want %s", rank, log, want)
			}
			program, err := os.ReadFile(dir + "/0000.mlir")
			if err != nil || !strings.Contains(string(program), "num_replicas = 4") {
				t.Errorf("process %d: %v, the program is not for four replicas: %.500s", rank, err, program)
			}
		}
	}
}
