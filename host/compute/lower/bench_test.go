package lower_test

import (
	"fmt"
	"math"
	"math/bits"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/fakequant"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/host/testing/testquantizer"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// measure runs a step and reports the time per element of the first input in the fastest run, which
// other load on the machine changes least.
func measure(b *testing.B, inputs []reference.Tensor, build engine.BuildFunc) {
	b.Helper()
	var specs []engine.Spec
	var buffers []*engine.Buffer
	for i, x := range inputs {
		buffers = append(buffers, upload(b, x))
		specs = append(specs, engine.Spec{Name: fmt.Sprint("in", i), Shape: buffers[i].Shape()})
	}
	step, err := shared(b).Compile(b.Name(), specs, build)
	if err != nil {
		b.Fatal(err)
	}
	defer step.Close()
	best := time.Duration(math.MaxInt64)
	for b.Loop() {
		start := time.Now()
		out, err := step.Run(buffers, nil)
		if err != nil {
			b.Fatal(err)
		}
		if err := engine.FinalizeAll(out...); err != nil {
			b.Fatal(err)
		}
		best = min(best, time.Since(start))
	}
	b.ReportMetric(float64(best.Nanoseconds())/float64(inputs[0].Len()), "best-ns/element")
}

// handQuest builds the program of quest directly as a graph.
func handQuest(x *graph.Node, block int) (value, mask *graph.Node) {
	const k, largest = 2.370255550006294, 7
	g, d := x.Graph(), x.Shape().Dimensions
	h := handHadamard(g, block)
	rotate := func(x *graph.Node) *graph.Node {
		y := engine.ExactDot(graph.Reshape(x, d[0]*d[1]/block, block), []int{1}, nil, h, []int{0}, nil)
		return graph.Reshape(y, d...)
	}
	z := rotate(x)
	step := graph.MulScalar(graph.Sqrt(graph.InsertAxes(graph.ReduceMean(graph.Square(z), -1), -1)),
		k/largest)
	r := graph.Div(z, graph.Where(graph.Equal(step, graph.Scalar(g, shapes.Float32, 0)),
		graph.OnesLike(step), step))
	q := graph.Round(r)
	q = graph.Max(graph.Min(q, graph.Const(g, float32(largest))), graph.Const(g, float32(-largest-1)))
	mask = graph.LessOrEqual(graph.Abs(graph.Sub(r, q)), graph.Scalar(g, shapes.Float32, 0.5))
	return rotate(graph.Mul(q, step)), mask
}

func handHadamard(g *graph.Graph, block int) *graph.Node {
	data := make([]float32, block*block)
	for i := range data {
		data[i] = float32((1 - 2*float64(bits.OnesCount(uint(i/block&(i%block)))&1)) / math.Sqrt(
			float64(block)))
	}
	return graph.Constant(g, data, block, block)
}

var questSizes = []struct{ rows, cols, block int }{
	{2048, 256, 256}, {704, 256, 256}, {2048, 704, 64}, {2048, 256, 128},
}

// BenchmarkLowerQuest compares a lowered with a handwritten quantizer, with and without gradient.
func BenchmarkLowerQuest(b *testing.B) {
	for _, s := range questSizes {
		x := normal(1, s.rows, s.cols)
		p := build(b, quest(s.block, s.rows, s.cols))
		part, err := fakequant.New(spec.Quantizer{Program: p})
		if err != nil {
			b.Fatal(err)
		}
		size := fmt.Sprintf("%dx%d/%d/", s.rows, s.cols, s.block)
		b.Run(size+"forward/lowered", func(b *testing.B) {
			measure(b, []reference.Tensor{x}, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
				value, _ := testquantizer.Quantize(in[0], testquantizer.Given{}, part)
				return []*graph.Node{value}
			})
		})
		b.Run(size+"forward/hand", func(b *testing.B) {
			measure(b, []reference.Tensor{x}, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
				value, _ := handQuest(in[0], s.block)
				return []*graph.Node{value}
			})
		})
		b.Run(size+"gradient/lowered", func(b *testing.B) {
			measure(b, []reference.Tensor{x}, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
				value, back := testquantizer.Quantize(in[0], testquantizer.Given{}, part)
				return back(value)
			})
		})
		b.Run(size+"gradient/hand", func(b *testing.B) {
			measure(b, []reference.Tensor{x}, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
				value, mask := handQuest(in[0], s.block)
				h := handHadamard(g, s.block)
				rotate := func(x *graph.Node) *graph.Node {
					return graph.Reshape(engine.ExactDot(graph.Reshape(x, s.rows*s.cols/s.block, s.block),
						[]int{1}, nil, h, []int{0}, nil), s.rows, s.cols)
				}
				dz := rotate(value)
				return []*graph.Node{rotate(graph.Where(mask, dz, graph.ZerosLike(dz)))}
			})
		})
	}
}

// BenchmarkLowerOp measures each kind of operation on [2048, 704] operands. The time includes the
// reduction of the result to row sums, which "nothing" measures alone.
func BenchmarkLowerOp(b *testing.B) {
	const rows, cols = 2048, 704
	x, y, row := normal(1, rows, cols), normal(2, rows, cols), normal(3, rows, 1)
	for _, c := range []struct {
		name  string
		write func(b *program.Builder, x, y, row program.Value) program.Value
	}{
		{"nothing", func(b *program.Builder, x, y, row program.Value) program.Value { return x }},
		{"add", func(b *program.Builder, x, y, row program.Value) program.Value { return x.Add(y) }},
		{"div_row", func(b *program.Builder, x, y, row program.Value) program.Value {
			return x.Div(row)
		}},
		{"abs", func(b *program.Builder, x, y, row program.Value) program.Value { return x.Abs() }},
		{"sign", func(b *program.Builder, x, y, row program.Value) program.Value { return x.Sign() }},
		{"sqrt", func(b *program.Builder, x, y, row program.Value) program.Value { return x.Sqrt() }},
		{"exp", func(b *program.Builder, x, y, row program.Value) program.Value { return x.Exp() }},
		{"tanh", func(b *program.Builder, x, y, row program.Value) program.Value { return x.Tanh() }},
		{"pow", func(b *program.Builder, x, y, row program.Value) program.Value {
			return x.Pow(b.Const(1.5))
		}},
		{"log", func(b *program.Builder, x, y, row program.Value) program.Value { return x.Log() }},
		{"floor", func(b *program.Builder, x, y, row program.Value) program.Value { return x.Floor() }},
		{"round", func(b *program.Builder, x, y, row program.Value) program.Value { return x.Round() }},
		{"round_clip", func(b *program.Builder, x, y, row program.Value) program.Value {
			return x.Round().Clip(-8, 7)
		}},
		{"clip", func(b *program.Builder, x, y, row program.Value) program.Value {
			return x.Clip(-1, 1)
		}},
		{"clip_strict", func(b *program.Builder, x, y, row program.Value) program.Value {
			return x.Max(b.Const(-1)).Min(b.Const(1))
		}},
		{"max", func(b *program.Builder, x, y, row program.Value) program.Value { return x.Max(y) }},
		{"logb", func(b *program.Builder, x, y, row program.Value) program.Value { return x.Logb() }},
		{"ldexp_row", func(b *program.Builder, x, y, row program.Value) program.Value {
			return x.Ldexp(row.Round())
		}},
		{"ldexp_row_clipped", func(b *program.Builder, x, y, row program.Value) program.Value {
			return x.Ldexp(row.Round().Clip(-126, 127))
		}},
		{"less_select", func(b *program.Builder, x, y, row program.Value) program.Value {
			return x.Lt(y).Select(x, b.Const(0))
		}},
		{"row_select", func(b *program.Builder, x, y, row program.Value) program.Value {
			return row.Lt(b.Const(0)).Select(x, b.Const(0))
		}},
		{"less_and_select", func(b *program.Builder, x, y, row program.Value) program.Value {
			return x.Lt(y).And(x.Gt(row)).Select(x, b.Const(0))
		}},
		{"less_convert", func(b *program.Builder, x, y, row program.Value) program.Value {
			return x.Lt(y).Convert(program.Float)
		}},
		{"finite_select", func(b *program.Builder, x, y, row program.Value) program.Value {
			return x.IsFinite().Select(x, b.Const(0))
		}},
		{"bitcast_add", func(b *program.Builder, x, y, row program.Value) program.Value {
			return x.Bitcast(program.Uint).Add(b.ConstUint(1 << 15)).Bitcast(program.Float)
		}},
		{"convert_int", func(b *program.Builder, x, y, row program.Value) program.Value {
			return x.Convert(program.Int).Convert(program.Float)
		}},
		{"random_bits", func(b *program.Builder, x, y, row program.Value) program.Value {
			return b.RandomBits(b.ConstUint(7).Broadcast([]int{2}, nil), rows, cols).Convert(program.Float)
		}},
		{"sum_row", func(b *program.Builder, x, y, row program.Value) program.Value {
			return x.MeanRow()
		}},
		{"absmax_row", func(b *program.Builder, x, y, row program.Value) program.Value {
			return x.Abs().MaxRow()
		}},
		{"absmax_32", func(b *program.Builder, x, y, row program.Value) program.Value {
			return x.Reshape(rows*cols/32, 32).Abs().MaxRow()
		}},
		{"absmax_16", func(b *program.Builder, x, y, row program.Value) program.Value {
			return x.Reshape(rows*cols/16, 16).Abs().MaxRow()
		}},
		{"transpose", func(b *program.Builder, x, y, row program.Value) program.Value {
			return x.Transpose(1, 0)
		}},
		{"slice_half", func(b *program.Builder, x, y, row program.Value) program.Value {
			return x.Slice([]int{0, 0}, []int{rows, cols / 2}, []int{1, 1})
		}},
		{"concatenate", func(b *program.Builder, x, y, row program.Value) program.Value {
			return x.Concatenate(1, y)
		}},
		{"broadcast_row", func(b *program.Builder, x, y, row program.Value) program.Value {
			return row.Broadcast([]int{rows, cols}, []int{0, 1}).Reshape(cols, rows)
		}},
	} {
		p := build(b, func(b *program.Builder) {
			x, y, row := b.Input("x", x.Type), b.Input("y", y.Type), b.Input("row", row.Type)
			v := c.write(b, x, y, row)
			b.Output(spec.OutputValue, v.ReduceSum(v.Type().Rank()-1))
		})
		b.Run(c.name, func(b *testing.B) {
			measure(b, []reference.Tensor{x, y, row}, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
				return []*graph.Node{lower.Lower(g, p, in)[spec.OutputValue]}
			})
		})
	}
}

func BenchmarkLowerHadamard(b *testing.B) {
	for _, block := range []int{4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048} {
		x := normal(1, 1024, 2048)
		p := build(b, func(b *program.Builder) { b.Output("y", b.Input("x", x.Type).Hadamard(block)) })
		b.Run(fmt.Sprint(block), func(b *testing.B) {
			measure(b, []reference.Tensor{x}, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
				return []*graph.Node{lower.Lower(g, p, in)["y"]}
			})
		})
	}
}
