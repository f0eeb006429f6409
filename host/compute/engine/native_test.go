package engine_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/internal/testing/testdevice"
)

// double returns 2x as float32 and x as int8.
func double(n int) engine.Native {
	return engine.Native{
		Name:    "double",
		Outputs: []shapes.Shape{shapes.Make(dtypes.Float32, n), shapes.Make(dtypes.Int8, n)},
		Run: func(in, out []engine.Tensor, parallel engine.Parallel) error {
			x := in[0].Flat.([]float32)
			twice, short := out[0].Flat.([]float32), out[1].Flat.([]int8)
			parallel(len(x), func(i int) { twice[i], short[i] = 2*x[i], int8(x[i]) })
			return nil
		},
	}
}

// TestNative checks natives between operations of the backend, and that inputs keep their values.
func TestNative(t *testing.T) {
	for _, threads := range []int{0, 1, 2, 5} {
		d := testdevice.OpenCPU(t, engine.Options{Threads: threads})
		const n = 1000
		x := make([]float32, n)
		want := make([]float32, n)
		for i := range x {
			x[i] = float32(i % 100)
			want[i] = 2*(x[i]+1) + float32(int8(x[i]+1)) + x[i]
		}
		in := engine.Input{Spec: engine.Spec{Name: "x", Shape: shapes.Make(dtypes.Float32, n)}, Data: x}
		out, err := d.Evaluate(t.Name(), []engine.Input{in},
			func(g *graph.Graph, in []*graph.Node) []*graph.Node {
				y := double(n).Call(graph.AddScalar(in[0], 1))
				sum := graph.Add(y[0], graph.ConvertDType(y[1], dtypes.Float32))
				again := double(n).Call(sum)[0] // a second call, with an unused output
				return []*graph.Node{graph.Add(graph.MulScalar(again, 0.5), in[0])}
			})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(out[0], want) {
			t.Errorf("%d threads: wrong values", threads)
		}
	}
}

// TestGradientAtNative checks that a native's outputs have gradients, and its inputs none through
// it.
func TestGradientAtNative(t *testing.T) {
	d := testdevice.OpenCPU(t, engine.Options{})
	x := engine.Input{Spec: engine.Spec{Name: "x", Shape: shapes.Make(dtypes.Float32, 3)},
		Data: []float32{1, -2, 3}}
	out, err := d.Evaluate(t.Name(), []engine.Input{x},
		func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
			y := double(3).Call(in[0])[0]
			return graph.Gradient(graph.ReduceAllSum(graph.Square(y)), y, in[0])
		})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(out[0], []float32{4, -8, 12}) || !slices.Equal(out[1], make([]float32, 3)) {
		t.Errorf("the gradients are %v", out)
	}
}

// TestNativeFails checks that an error or panic of a native, on any goroutine, is an error of the
// step that names the native.
func TestNativeFails(t *testing.T) {
	d := testdevice.OpenCPU(t, engine.Options{})
	cause := errors.New("no such number")
	for name, run := range map[string]func(in, out []engine.Tensor, parallel engine.Parallel) error{
		"error": func(in, out []engine.Tensor, parallel engine.Parallel) error { return cause },
		"panic": func(in, out []engine.Tensor, parallel engine.Parallel) error { panic(cause) },
		"panic in a task": func(in, out []engine.Tensor, parallel engine.Parallel) error {
			parallel(100, func(i int) {
				if i == 50 {
					panic(cause)
				}
			})
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := double(4)
			n.Run = run
			in := engine.Input{Spec: engine.Spec{Name: "x", Shape: shapes.Make(dtypes.Float32, 4)},
				Data: make([]float32, 4)}
			_, err := d.Evaluate(t.Name(), []engine.Input{in},
				func(g *graph.Graph, in []*graph.Node) []*graph.Node { return n.Call(in[0]) })
			if err == nil || !strings.Contains(err.Error(), cause.Error()) ||
				!strings.Contains(err.Error(), "native double") {
				t.Errorf("error is %v", err)
			}
		})
	}
}

// TestOrdinaryCallBesideNative checks that ordinary functions can be called beside natives.
func TestOrdinaryCallBesideNative(t *testing.T) {
	d := testdevice.OpenCPU(t, engine.Options{Kernels: "body"})
	in := engine.Input{Spec: engine.Spec{Name: "x", Shape: shapes.Make(dtypes.Float32, 3)},
		Data: []float32{1, 2, 3}}
	out, err := d.Evaluate(t.Name(), []engine.Input{in},
		func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			f := graph.NewFunction(g, "square", func(g *graph.Graph) []*graph.Node {
				return []*graph.Node{graph.Square(graph.Parameter(g, "", in[0].Shape()))}
			})
			return []*graph.Node{graph.Add(f.Call(in[0])[0], double(3).Call(in[0])[0])}
		})
	if err != nil {
		t.Fatal(err)
	}
	if want := []float32{3, 8, 15}; !slices.Equal(out[0], want) {
		t.Errorf("got %v, want %v", out[0], want)
	}
}
