// Command delayed is FP8 (E4M3) with delayed scaling, as in NVIDIA's Transformer Engine: the
// scale of a tensor follows from its largest magnitudes in the steps before, so that a kernel
// need not see the whole tensor before it rounds the first number.
//
//	a   = the largest of the last N values of max|x|
//	s   = 448 / a / 2^margin
//	Q(x) = E4M3(s·x) / s, where larger numbers than 448 become 448
//
// In the first step the tensor itself stands for those before; Transformer Engine begins with
// s = 1.
// (Micikevicius et al., "FP8 Formats for Deep Learning", 2022, arXiv 2209.05433; recipe
// DelayedScaling of Transformer Engine.)
package main

import (
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
)

type delayed struct{}

var (
	_ sdk.Quantizer = delayed{}
	_ sdk.Stateful  = delayed{}
	_ sdk.Maximal   = delayed{}
)

func (delayed) Describe() sdk.Description {
	return sdk.Description{
		Name:    "delayed",
		Version: "1.0.0",
		Doc: "FP8 (E4M3), one scale for the tensor from its largest magnitudes in the last steps " +
			"(Transformer Engine's delayed scaling).",
		Parameters: []sdk.Parameter{
			sdk.Int("history", 16, 1, 4096, "steps whose largest magnitudes count"),
			sdk.Int("margin", 0, 0, 8, "powers of two by which the scale is smaller"),
		},
	}
}

// history is the name of the state: the largest magnitudes of the last steps, the newest first.
const history = "history"

// InitState writes a history that has seen x alone.
func (delayed) InitState(b *program.Builder, x program.Value, site sdk.Site) (sdk.State, error) {
	return sdk.State{history: push(largest(x), b.Zeros(site.Int("history")))}, nil
}

// Maximum: of the micro-batches of a step the largest magnitude counts.
func (delayed) Maximum(string, sdk.Site) bool { return true }

// Quantize writes Q(x) for a weight or activation.
func (delayed) Quantize(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	past := site.State[history]
	a := past.MaxAll()
	known := a.Gt(b.Const(0)).And(a.IsFinite())
	up := known.Select(b.Const(microscaling.LargestE4M3).Div(a).
		Scale(math.Exp2(-float64(site.Int("margin")))).Min(b.Const(math.MaxFloat32)), b.Const(1))
	value := microscaling.RoundE4M3(x.Mul(up)).Div(up)
	return sdk.Quantized{
		Value: x.IsFinite().Select(value, b.Const(math.NaN())),
		Scale: b.Const(1).Div(up),
		Next:  sdk.State{history: push(largest(x), past)},
	}, nil
}

// largest is the largest magnitude of a tensor.
func largest(x program.Value) program.Value { return x.Abs().MaxAll() }

// push puts a number in front of a history, whose last one drops out.
func push(v, past program.Value) program.Value {
	n := past.Shape()[0]
	if v = v.Reshape(1); n == 1 {
		return v
	}
	return v.Concatenate(0, past.At(0, 0, n-1))
}

func main() { sdk.ServeQuantizer(delayed{}) }
