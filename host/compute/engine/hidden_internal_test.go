package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
)

// TestHidden fails if a new version of GoMLX changes what hidden.go relies on. It checks that a
// native gets its inputs and returns its outputs, and that a missing field is an error that names
// it. Tests of CUDA builds check the programs that XLA gets.
func TestHidden(t *testing.T) {
	if executeCall == nil {
		t.Errorf("the Go backend executes calls of functions by another function than %s",
			executeCallName)
	}
	d, err := Open(device.CPU, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	in := []Input{
		{Spec{Name: "x", Shape: shapes.Make(dtypes.Float32, 3)}, []float32{1, 2, 3}},
		{Spec{Name: "y", Shape: shapes.Make(dtypes.Float32, 3)}, []float32{10, 20, 30}},
	}
	out, err := d.Evaluate("trial of natives", in,
		func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			trial := Native{Name: "trial", Outputs: []shapes.Shape{shapes.Make(dtypes.Float32, 3),
				shapes.Make(dtypes.Int32, 2)}}
			trial.Run = func(in, out []Tensor, parallel Parallel) error {
				a, b := in[0].Flat.([]float32), in[1].Flat.([]int32)
				sums := out[0].Flat.([]float32)
				parallel(len(a), func(i int) { sums[i] = a[i] + float32(b[i]) })
				copy(out[1].Flat.([]int32), b[1:])
				return nil
			}
			results := trial.Call(in[0], graph.ConvertDType(in[1], dtypes.Int32))
			return []*graph.Node{results[0], graph.ConvertDType(results[1], dtypes.Float32)}
		})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(out), "[[11 22 33] [20 30]]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	err = catch(func() error { hidden(&struct{ other int }{}, "scalars"); return nil })
	if err == nil || !strings.Contains(err.Error(), "needs the field scalars of *struct") {
		t.Errorf("a field that is missing: %v", err)
	}
}

// TestThreadsReachBackend checks that Options.Threads limits the backend's pool.
func TestThreadsReachBackend(t *testing.T) {
	for threads, want := range map[int]string{0: "parallelism=-1", 3: "parallelism=3"} {
		d, err := Open(device.CPU, Options{Threads: threads})
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Description(); !strings.Contains(got, want) {
			t.Errorf("with %d threads the device is %q, want %q in it", threads, got, want)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestBuildInfo(t *testing.T) {
	d, err := Open(device.CPU, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	info := d.BuildInfo()
	if info != d.BuildInfo() {
		t.Error("two calls differ")
	}
	line := info.String()
	for _, want := range []string{"device=cpu", "go=go1.", "simd=" + vectorInstructions(), "gomlx=v",
		"backend=compute@v"} {
		if !strings.Contains(line, want) {
			t.Errorf("build info %q lacks %q", line, want)
		}
	}
}
