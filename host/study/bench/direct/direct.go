// Package direct writes the algorithms of two plugins, QuEST's quantizer and AdamW,
// straight into the graph, as a program without plugins would. It exists to measure how
// much the boundary between host and plugins costs in a step, and must not be used for
// anything else.
package direct

import (
	"math"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/compute/update"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// Quest is the QuEST quantizer (Panferov et al. 2025) in the integer form of the CAGE
// paper, §4 "Quantization pipeline", with a trust mask of 1.
type Quest struct {
	Bits  int
	Block int     // block size of the Hadamard rotation; 1 for none
	K     float64 // clipping factor k_b
	Half  bool    // whether it returns H·Q(x), and takes gradients with respect to that
}

// KeepRotated returns the half variant, which saves a rotation in each direction.
func (q Quest) KeepRotated() (*lower.Rotated, error) {
	if q.Half || q.Block <= 1 {
		return nil, nil
	}
	half := q
	half.Half = true
	return &lower.Rotated{Quantizer: half, Block: q.Block, Saved: 2}, nil
}

// CodeShapes returns nil: products are those of values.
func (Quest) CodeShapes(*engine.Device) []shapes.Shape { return nil }

// Trained returns nil: there are no trained parameters.
func (Quest) Trained() []spec.Tensor { return nil }

// State returns nil: there is no state.
func (Quest) State() []spec.Tensor { return nil }

// Takes returns false: every step is the same.
func (Quest) Takes(string) bool { return false }

// Evaluation returns nil: evaluation quantizes as training does.
func (Quest) Evaluation() (lower.Quantizer, error) { return nil, nil }

// Calibrated returns false: there is nothing to initialise.
func (Quest) Calibrated() bool { return false }

// Init returns nil: there is nothing to initialise.
func (Quest) Init(*graph.Node, lower.Columns) []*graph.Node { return nil }

// InitState returns nil: there is no state.
func (Quest) InitState(*graph.Node, lower.Columns) []*graph.Node { return nil }

// Next returns nil: there is no state.
func (Quest) Next(*graph.Node, lower.Given) []*graph.Node { return nil }

// Forward returns Q(x) and the mask. A row that contains NaN or ±Inf becomes NaN through
// its scale, with the mask 0; a zero row stays zero. Only the rotation is taken from the
// host's lowering, where it is a primitive.
func (q Quest) Forward(x *graph.Node, _ lower.Given) (*graph.Node, []*graph.Node) {
	top := math.Exp2(float64(q.Bits-1)) - 1
	z := q.rotate(x)
	mean := graph.MulScalar(graph.ReduceAndKeep(graph.Mul(z, z), graph.ReduceSum, -1), 1/float64(x.Shape().Dim(-1)))
	sigma := graph.Sqrt(mean)
	scalar := func(v float64) *graph.Node { return graph.Scalar(x.Graph(), x.DType(), v) }
	s := graph.Where(graph.IsFinite(sigma), graph.MulScalar(sigma, q.K/top), scalar(math.NaN()))
	r := graph.Div(z, graph.Where(graph.Equal(sigma, scalar(0)), scalar(1), s))
	inside := graph.MinScalar(graph.MaxScalar(r, -top-1), top)
	mask := graph.LessOrEqual(graph.Abs(graph.Sub(r, inside)), scalar(0.5))
	value := graph.Mul(round(inside), s)
	if !q.Half {
		value = q.rotate(value)
	}
	return value, []*graph.Node{mask}
}

// Backward returns dx = Hᵀ(M ⊙ H·dy), or Hᵀ(M ⊙ dy) in the half variant.
func (q Quest) Backward(_ lower.Point, residuals []*graph.Node, dy *graph.Node) (*graph.Node, []*graph.Node) {
	if !q.Half {
		dy = q.rotate(dy)
	}
	return q.rotate(graph.Where(residuals[0], dy, graph.ScalarZero(dy.Graph(), dy.DType()))), nil
}

func (q Quest) rotate(x *graph.Node) *graph.Node { return rotate(x, q.Block) }

func rotate(x *graph.Node, block int) *graph.Node {
	if block <= 1 {
		return x
	}
	b := program.NewBuilder("rotation")
	b.Output("z", b.Input("x", program.FloatType(x.Shape().Dimensions...)).Hadamard(block))
	p, err := b.Build()
	if err != nil {
		panic(err)
	}
	return lower.Lower(x.Graph(), p, []*graph.Node{x})["z"]
}

// round is half to even for numbers below 2²², by a shift of the binary point.
func round(x *graph.Node) *graph.Node {
	const shifter = 3 << 22
	return graph.AddScalar(graph.AddScalar(x, shifter), -shifter)
}

// AdamW returns a function that builds the update of one tensor as method.Rule does with
// the AdamW plugin: clip, decay, Adam's moments, and the decoupled correction of a
// homogeneous quantizer.
func AdamW(beta1, beta2, eps float64) func(cage.Rule, update.Nodes) update.Nodes {
	return func(rule cage.Rule, in update.Nodes) update.Nodes {
		x, g, t, rate := in[spec.InputX], in[spec.InputGradient], in[spec.InputStep], in[spec.InputRate]
		if rule.Clip {
			g = graph.Mul(g, in[cage.InputClip])
		}
		m := graph.Add(graph.MulScalar(in[spec.StatePrefix+"m"], beta1), graph.MulScalar(g, 1-beta1))
		v := graph.Add(graph.MulScalar(in[spec.StatePrefix+"v"], beta2), graph.MulScalar(graph.Mul(g, g), 1-beta2))
		correct := func(beta float64) *graph.Node {
			return graph.Neg(graph.Expm1(graph.MulScalar(t, math.Log(beta))))
		}
		c1, c2 := correct(beta1), correct(beta2)
		u := graph.Div(m, graph.Add(graph.Mul(graph.Sqrt(v), graph.Div(c1, graph.Sqrt(c2))), graph.MulScalar(c1, eps)))
		keep := graph.OneMinus(graph.MulScalar(rate, rule.Decay))
		decayed := x
		if rule.Decay > 0 {
			decayed = graph.Mul(x, keep)
		}
		y := graph.Sub(decayed, graph.Mul(u, rate))
		out := update.Nodes{spec.StatePrefix + "m": m, spec.StatePrefix + "v": v}
		if rule.Mode == cage.Mode(cage.Decoupled) && rule.Quantizer != nil {
			e := graph.Sub(x, rotate(in[cage.InputQuantized], rule.Rotation))
			ok := graph.IsFinite(graph.ReduceAllSum(graph.Mul(e, e)))
			factor := graph.Mul(graph.Mul(rate, in[cage.InputLambda]), keep)
			y = graph.Sub(y, graph.Mul(graph.Where(ok, e, graph.ZerosLike(e)), factor))
			out[cage.OutputUncorrected] = graph.ConvertDType(graph.LogicalNot(ok), x.DType())
		}
		out[spec.InputX] = y
		return out
	}
}
