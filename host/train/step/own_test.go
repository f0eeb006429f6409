package step_test

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// pushing is a quantizer that rounds numbers, rotated by a block, to multiples of a trained step
// size; with weights set, it quantizes only weights.
type pushing struct {
	block   int
	weights bool
}

// leaves reports whether a site is not quantized.
func (q pushing) leaves(site sdk.Site) bool { return q.weights && site.Role != sdk.RoleWeight }

func (pushing) Describe() sdk.Description { return sdk.Description{Name: "pushing"} }

func (q pushing) InitTrained(
	b *program.Builder, _ program.Value, site sdk.Site,
) (sdk.State, error) {
	if q.leaves(site) {
		return nil, nil
	}
	return sdk.State{"step": b.Const(1.0 / 64)}, nil
}

func (q pushing) rounded(x program.Value, site sdk.Site) (r, codes program.Value) {
	r = x.Hadamard(q.block).Div(site.Trained["step"])
	return r, r.Round()
}

func (q pushing) Quantize(
	_ *program.Builder, x program.Value, site sdk.Site,
) (sdk.Quantized, error) {
	if q.leaves(site) {
		return sdk.Quantized{Value: x}, nil
	}
	_, codes := q.rounded(x, site)
	return sdk.Quantized{Value: codes.Mul(site.Trained["step"]).Hadamard(q.block)}, nil
}

// ceiling is the magnitude to which pushed clips gradients.
const ceiling = 2e-3

// pushed is pushing with its own backward pass, which clips gradients to the ceiling, and then
// scales them according to their signs and the rounding error.
type pushed struct{ pushing }

func (q pushed) Backward(
	b *program.Builder, x, dy program.Value, site sdk.Site,
) (sdk.Gradients, error) {
	if q.leaves(site) {
		return sdk.Gradients{X: dy}, nil
	}
	r, codes := q.rounded(x, site)
	dz := dy.Hadamard(q.block).Clip(-ceiling, ceiling)
	dz = dz.Mul(dz.Sign().Mul(r.Sub(codes)).Scale(0.5).Shift(1))
	return sdk.Gradients{X: dz.Hadamard(q.block), Trained: sdk.State{"step": dz.Abs().SumAll()}}, nil
}

// straight is pushing with the gradients of a surrogate.
type straight struct{ pushing }

func (q straight) Quantize(
	b *program.Builder, x program.Value, site sdk.Site,
) (sdk.Quantized, error) {
	out, err := q.pushing.Quantize(b, x, site)
	if !q.leaves(site) {
		out.Surrogate = x.Add(site.Trained["step"])
	}
	return out, err
}

// TestOwnBackwardOfWeights checks that the backward pass of a weight's quantizer, which need not be
// linear, gets the mean gradient of the step, and returns the gradients of the weight and of the
// trained parameter.
func TestOwnBackwardOfWeights(t *testing.T) {
	cfg := sgdConfig(t, "train.accumulate=3")
	after := func(q sdk.Quantizer) (before, after map[string][]float32) {
		c := testrun.Compile(t, planOf(t, cfg, q, descent{}))
		s := newState(t, c)
		before = testrun.Download(t, c, s)
		run(t, c, s, batches(cfg, 1, 3), step.Settings{Step: 1, Rate: 1})
		return before, testrun.Download(t, c, s)
	}
	x, plain := after(straight{pushing{1, true}})
	_, own := after(pushed{pushing{1, true}})
	clipped := 0
	for name, values := range x {
		scale, quantized := x["param/"+spec.Tensor{Name: "step"}.At(name[len("param/"):])]
		if !quantized {
			continue
		}
		sum := 0.0
		for i, v := range values {
			dy := float64(v) - float64(plain[name][i])
			if math.Abs(dy) > ceiling {
				clipped++
			}
			dy = math.Copysign(min(math.Abs(dy), ceiling), dy)
			r := float64(v) / float64(scale[0])
			want := dy * (1 + 0.5*math.Copysign(1, dy)*(r-math.RoundToEven(r)))
			sum += math.Abs(want)
			if got := float64(v) - float64(own[name][i]); math.Abs(got-want) > 1e-7 {
				t.Fatalf("%s, element %d moved by %v, want %v", name, i, got, want)
			}
		}
		trained := "param/" + spec.Tensor{Name: "step"}.At(name[len("param/"):])
		if got := float64(scale[0]) - float64(own[trained][0]); math.Abs(got-sum) > 1e-4*sum {
			t.Errorf("%s moved by %v, want %v", trained, got, sum)
		}
	}
	if clipped == 0 {
		t.Error("no gradient is clipped: the test needs some")
	}
}

// TestOwnBackwardRotated checks that operands with their own backward pass may stay rotated, too.
func TestOwnBackwardRotated(t *testing.T) {
	cfg := sgdConfig(t, "model.hidden=64")
	compiled := func(full bool) *step.Compiled {
		plan := planOf(t, cfg, pushed{pushing{block: 16}}, descent{})
		plan.FullRotations = full
		return inGraphs(t, cfg, plan).Compiled
	}
	half, full := compiled(false), compiled(true)
	if len(rotations(half)) == 0 || len(rotations(full)) > 0 {
		t.Fatalf("left rotated: %v and %v", rotations(half), rotations(full))
	}
	b := batches(cfg, 1, 1)
	sameGradients(t, half, gradients(t, half, b, b[0]...), gradients(t, full, b, b[0]...))
}
