package engine_test

import (
	"testing"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/internal/testing/testdevice"
)

// TestDotOperations: products count once where they are equal, and not where nothing needs them or a native computes them. A
// device that is watched tells of each run.
func TestDotOperations(t *testing.T) {
	for _, tc := range []struct {
		precision device.Precision
		want      float64
	}{
		{device.Float32, 2*4*3*5 + 2*7*4*5*4},
		{device.BFloat16, 2 * 7 * 4 * 5 * 4}, // the other one is a native
	} {
		d := testdevice.OpenCPU(t, engine.Options{Precision: tc.precision})
		e, err := d.Compile("products", []engine.Spec{{Name: "a", Shape: f32(4, 3)}, {Name: "b", Shape: f32(3, 5)}, {Name: "c", Shape: f32(7, 4, 5)}}, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
			dot := func() *graph.Node { return engine.DotGeneral(in[0], []int{1}, nil, in[1], []int{0}, nil) }
			graph.DotGeneral(in[0], []int{0}, nil, in[0], []int{0}, nil)
			batch := graph.DotGeneral(in[2], []int{2}, []int{0}, in[2], []int{2}, []int{0})
			return []*graph.Node{graph.Add(dot(), dot()), graph.ReduceAllSum(batch)}
		})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		if got, err := e.DotOperations(); err != nil || got != tc.want {
			t.Errorf("%s: %v operations, %v; want %v", tc.precision, got, err, tc.want)
		}
		var in []*engine.Buffer
		for _, dims := range [][]int{{4, 3}, {3, 5}, {7, 4, 5}} {
			b, err := engine.Upload(d, make([]float32, f32(dims...).Size()), dims...)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Finalize()
			in = append(in, b)
		}
		runs := 0
		stop := d.Watch(func(got *engine.Executable) {
			if got != e {
				t.Errorf("watched %s", got.Name())
			}
			runs++
		})
		for i := range 3 {
			if i == 2 {
				stop()
			}
			out, err := e.Run(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			engine.FinalizeAll(out...)
		}
		if runs != 2 {
			t.Errorf("%s: %d runs seen, want 2", tc.precision, runs)
		}
	}
}

// TestDotOperationsOfXLA: what is not computed on the CPU is not counted.
func TestDotOperationsOfXLA(t *testing.T) {
	d, _ := record(t, engine.Options{})
	e := compile(t, d, descentInputs(), descent)
	if n, err := e.DotOperations(); err == nil {
		t.Errorf("%v operations", n)
	}
}
