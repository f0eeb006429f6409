package engine_test

import (
	"math"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/internal/testing/testdevice"
)

// evaluate builds a graph of float32 vectors and matrices, runs it and returns its outputs, flat.
func evaluate(t *testing.T, inputs [][]float32, dims [][]int, build engine.BuildFunc) [][]float32 {
	t.Helper()
	d, err := engine.Open(device.CPU, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var buffers []*engine.Buffer
	for i, data := range inputs {
		buffers = append(buffers, testdevice.Upload(t, d, data, dims[i]...))
	}
	return testdevice.Evaluate(t, d, buffers, build)
}

// expect compares bit patterns.
func expect(t *testing.T, what string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s = %v, want %v", what, got, want)
	}
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Errorf("%s = %v, want %v", what, got, want)
			return
		}
	}
}

// straightThrough returns value as a node whose gradient for x is vjp(dy), or dy if vjp is nil.
func straightThrough(value, x *graph.Node, vjp func(dy *graph.Node) *graph.Node) *graph.Node {
	return engine.Custom(value, []*graph.Node{x}, func(dy *graph.Node) []*graph.Node {
		if vjp == nil {
			return []*graph.Node{dy}
		}
		return []*graph.Node{vjp(dy)}
	})
}

var (
	negativeZero = float32(math.Copysign(0, -1))
	notANumber   = float32(math.NaN())
	infinity     = float32(math.Inf(1))
)

// TestStraightThroughValue checks that values are exact to the bit. Values of x + stop(value − x)
// would not be.
func TestStraightThroughValue(t *testing.T) {
	value := []float32{negativeZero, notANumber, infinity, -infinity, 1e-45, 1, 16777216}
	x := []float32{1e30, 1, infinity, 3, 1e10, notANumber, 0.1}
	for name, vjp := range map[string]func(*graph.Node) *graph.Node{
		"plain": nil,
		"rule":  func(dy *graph.Node) *graph.Node { return graph.MulScalar(dy, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			out := evaluate(t, [][]float32{value, x}, [][]int{{7}, {7}},
				func(g *graph.Graph, in []*graph.Node) []*graph.Node {
					return []*graph.Node{straightThrough(in[0], in[1], vjp)}
				})
			expect(t, "value", out[0], value)
		})
	}
}

// TestStraightThroughGradient differentiates sum(w·Q(x)²) + sum(x), where Q rounds and its gradient
// rule is a mask: the gradient is 2·w·Q(x)·mask + 1.
func TestStraightThroughGradient(t *testing.T) {
	x, w := []float32{0.4, 1.6, -2.6, 9}, []float32{1, 2, 3, 4}
	out := evaluate(t, [][]float32{x, w}, [][]int{{4}, {4}},
		func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			rounded := graph.Round(in[0])
			mask := graph.ConvertDType(graph.LessThan(in[0], graph.Scalar(g, dtypes.Float32, 5)),
				dtypes.Float32)
			q := straightThrough(rounded, in[0],
				func(dy *graph.Node) *graph.Node { return graph.Mul(dy, mask) })
			loss := graph.Add(graph.ReduceAllSum(graph.Mul(in[1], graph.Square(q))),
				graph.ReduceAllSum(in[0]))
			gradients := graph.Gradient(loss, in[0], in[1])
			return append(gradients, q)
		})
	expect(t, "dx", out[0], []float32{0*2*1 + 1, 2*2*2 + 1, -3*2*3 + 1, 1})
	expect(t, "dw", out[1], []float32{0, 4, 9, 81})
	expect(t, "Q(x)", out[2], []float32{0, 2, -3, 9})
}

// TestStraightThroughNested chains two quantizers: rules compose in reverse order.
func TestStraightThroughNested(t *testing.T) {
	out := evaluate(t, [][]float32{{1.2, -3.7}}, [][]int{{2}},
		func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			inner := straightThrough(graph.Round(in[0]), in[0],
				func(dy *graph.Node) *graph.Node { return graph.MulScalar(dy, 3) })
			outer := straightThrough(graph.Sign(inner), inner,
				func(dy *graph.Node) *graph.Node { return graph.AddScalar(dy, 1) })
			loss := graph.ReduceAllSum(graph.MulScalar(outer, 5))
			return append(graph.Gradient(loss, in[0]), outer)
		})
	expect(t, "dx", out[0], []float32{18, 18})
	expect(t, "value", out[1], []float32{1, -1})
}

// TestGradientOfOtherInput checks the gradient of a node that the value is not computed from.
func TestGradientOfOtherInput(t *testing.T) {
	out := evaluate(t, [][]float32{{1, 2}, {3, 4}}, [][]int{{2}, {2}},
		func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			q := straightThrough(in[1], in[0],
				func(dy *graph.Node) *graph.Node { return graph.MulScalar(dy, 7) })
			return graph.Gradient(graph.ReduceAllSum(q), in[0])
		})
	expect(t, "dx", out[0], []float32{7, 7})
}

// TestValueStopsGradient checks that no gradient flows through the value, which depends on x and w.
func TestValueStopsGradient(t *testing.T) {
	out := evaluate(t, [][]float32{{1, 2}, {3, 4}}, [][]int{{2}, {2}},
		func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			q := straightThrough(graph.Mul(in[0], in[1]), in[0], nil)
			return graph.Gradient(graph.ReduceAllSum(q), in[0], in[1])
		})
	expect(t, "dx", out[0], []float32{1, 1})
	expect(t, "dw", out[1], []float32{0, 0})
}

// TestCustomMatchesAutomatic defines the gradient of a product by hand, with inputs whose shapes
// differ from the value's, and compares it with GoMLX's.
func TestCustomMatchesAutomatic(t *testing.T) {
	x, w, c := []float32{1, 2, 3, 4, 5, 6}, []float32{1, -1, 2, 0, 3, 1}, []float32{1, 2, 3, 4}
	dims := [][]int{{2, 3}, {2, 3}, {2, 2}}
	build := func(product func(x, w *graph.Node) *graph.Node) engine.BuildFunc {
		return func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			y := product(in[0], in[1])
			return append(graph.Gradient(graph.ReduceAllSum(graph.Mul(graph.Square(y), in[2])), in[0],
				in[1]), y)
		}
	}
	value := func(x, w *graph.Node) *graph.Node {
		return graph.DotGeneral(x, []int{1}, nil, w, []int{1}, nil)
	}
	want := evaluate(t, [][]float32{x, w, c}, dims, build(value))
	got := evaluate(t, [][]float32{x, w, c}, dims, build(func(x, w *graph.Node) *graph.Node {
		return engine.Custom(value(x, w), []*graph.Node{x, w}, func(dy *graph.Node) []*graph.Node {
			return []*graph.Node{graph.MatMul(dy, w), graph.MatMul(graph.Transpose(dy, 0, 1), x)}
		})
	}))
	for i, what := range []string{"dx", "dw", "y"} {
		expect(t, what, got[i], want[i])
	}
}

// TestCustomNilAdjoint checks that an input with a nil adjoint gets no gradient from the custom
// node.
func TestCustomNilAdjoint(t *testing.T) {
	out := evaluate(t, [][]float32{{1, 2}, {3, 4}}, [][]int{{2}, {2}},
		func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			y := engine.Custom(graph.Mul(in[0], in[1]), in,
				func(dy *graph.Node) []*graph.Node { return []*graph.Node{nil, dy} })
			return graph.Gradient(graph.ReduceAllSum(graph.Add(y, in[0])), in...)
		})
	expect(t, "da", out[0], []float32{1, 1})
	expect(t, "db", out[1], []float32{1, 1})
}

// TestRuleIsLazy checks that the rule is not called without differentiation.
func TestRuleIsLazy(t *testing.T) {
	evaluate(t, [][]float32{{1}}, [][]int{{1}}, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		return []*graph.Node{straightThrough(in[0], in[0], func(*graph.Node) *graph.Node {
			t.Error("the gradient rule was called")
			return nil
		})}
	})
}

func TestMistakesPanic(t *testing.T) {
	d, err := engine.Open(device.CPU, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	gradient := func(y, x *graph.Node) []*graph.Node {
		return graph.Gradient(graph.ReduceAllSum(y), x)
	}
	for name, tc := range map[string]struct {
		build func(x *graph.Node) []*graph.Node
		want  string
	}{
		"no inputs": {func(x *graph.Node) []*graph.Node {
			return []*graph.Node{engine.Custom(x, nil, nil)}
		}, "at least one input"},
		"shapes": {func(x *graph.Node) []*graph.Node {
			return gradient(straightThrough(graph.ReduceAllSum(x), x, nil), x)
		}, "has shape"},
		"adjoint shape": {func(x *graph.Node) []*graph.Node {
			return gradient(straightThrough(x, x,
				func(dy *graph.Node) *graph.Node { return graph.ReduceAllSum(dy) }), x)
		}, "has shape"},
		"adjoint count": {func(x *graph.Node) []*graph.Node {
			return gradient(engine.Custom(x, []*graph.Node{x},
				func(dy *graph.Node) []*graph.Node { return nil }), x)
		}, "0 adjoints for 1 inputs"},
	} {
		t.Run(name, func(t *testing.T) {
			inputs := []engine.Spec{{Name: "x", Shape: shapes.Make(dtypes.Float32, 3)}}
			_, err := d.Compile(name, inputs,
				func(g *graph.Graph, in []*graph.Node) []*graph.Node { return tc.build(in[0]) })
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want %q in it", err, tc.want)
			}
		})
	}
}
