package step_test

import (
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/compute/fakequant"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// operandsOf returns the quantizers that q provides for the operands of the backward pass.
func operandsOf(
	t testing.TB, cfg *config.Config, plan *step.Plan, q sdk.Quantizer,
) map[step.OperandSite]fakequant.Operand {
	t.Helper()
	list := map[step.OperandSite]fakequant.Operand{}
	sites, shapes := step.BackwardSites(plan.Model, cfg.Train.Batch, cfg.Model.Context)
	for i, s := range sites {
		p, err := sdk.BuildQuantizer(q, sdk.Site{Role: s.Role, Product: s.Product, Name: s.Name,
			Shape: shapes[i]})
		if err != nil {
			t.Fatal(err)
		}
		if list[s], err = fakequant.NewOperand(p); err != nil {
			t.Fatal(err)
		}
	}
	return list
}

// backwardStep returns a step with separate quantizers for the forward and the backward pass; a nil
// quantizer quantizes nothing.
func backwardStep(
	t *testing.T, d step.Dispatch, forward, backward sdk.Quantizer, overrides ...string,
) compiledStep {
	t.Helper()
	cfg := sgdConfig(t, overrides...)
	plan := planOf(t, cfg, forward, descent{})
	plan.Dispatch = d
	plan.Unquantized = cfg.Train.Requantize == "off"
	if backward != nil {
		plan.Backward = operandsOf(t, cfg, &plan, backward)
	}
	k := inGraphs(t, cfg, plan)
	if err := k.Prepare(false); err != nil {
		t.Fatal(err)
	}
	return k
}

// TestBackwardIdentity checks that an identity quantizer of the backward pass gives the gradients
// of a pass without quantizers, up to the order of sums, with and without a quantized forward pass.
func TestBackwardIdentity(t *testing.T) {
	tokens := batches(sgdConfig(t), 5, 1)
	for name, forward := range map[string]sdk.Quantizer{"unquantized": nil, "quantized": grid{}} {
		want := gradients(t, backwardStep(t, step.Chain, forward, nil).Compiled, tokens)
		got := gradients(t, backwardStep(t, step.Chain, forward, identity{}).Compiled, tokens)
		for i := range want {
			for j := range want[i] {
				got[i][j] -= want[i][j]
			}
			if d := math.Sqrt(norm2(got[i]) / norm2(want[i])); d > 1e-4 {
				t.Errorf("%s: gradient %d differs by %.2g", name, i, d)
			}
		}
	}
}

// TestBackwardUnquantized checks that, with train.requantize = "off", the backward pass quantizes x
// and W instead of Q(x) and Q(W). With the elementwise quantizer of the forward pass, gradients
// have the same bits as with Q(x) and Q(W); with the identity they differ.
func TestBackwardUnquantized(t *testing.T) {
	for name, overrides := range map[string][]string{"one": nil, "three": {"train.accumulate=3"},
		"recomputed": {`train.recompute="blocks"`}} {
		if testing.Short() && name != "three" {
			continue
		}
		for _, d := range []step.Dispatch{step.Chain, step.Single} {
			c := backwardStep(t, d, grid{}, identity{}, overrides...)
			tokens := batches(sgdConfig(t), 5, c.Plan().Accumulate)
			want := gradients(t, c.Compiled, tokens)
			off := append(slices.Clone(overrides), `train.requantize="off"`)
			got := gradients(t, backwardStep(t, d, grid{}, operandGrid{}, off...).Compiled, tokens)
			other := gradients(t, backwardStep(t, d, grid{}, identity{}, off...).Compiled, tokens)
			for i, p := range c.Plan().Model.Params() {
				if !slices.Equal(got[i], want[i]) {
					t.Errorf("%s, %s: the gradient of %s is not that of Q(x) and Q(W)", name, d, p.Name)
				}
				if p.Quantized && slices.Equal(other[i], want[i]) {
					t.Errorf("%s, %s: the gradient of %s is that of Q(x) and Q(W), not of x and W", name, d,
						p.Name)
				}
			}
		}
	}
}

// operandGrid is grid for weights and activations, and leaves gradients as they are.
type operandGrid struct{ grid }

func (q operandGrid) Quantize(
	b *program.Builder, x program.Value, site sdk.Site,
) (sdk.Quantized, error) {
	if site.Role == sdk.RoleGradient {
		return sdk.Quantized{Value: x}, nil
	}
	return q.grid.Quantize(b, x, site)
}

// TestBackwardUnbiased checks that stochastic rounding with random signs changes the gradient of a
// single draw, but not the mean gradient over many draws.
func TestBackwardUnbiased(t *testing.T) {
	testlevel.Long(t, "200 steps")
	const draws = 200
	tokens := batches(sgdConfig(t), 5, 1)
	want := gradients(t, backwardStep(t, step.Chain, grid{}, nil).Compiled, tokens)
	c := backwardStep(t, step.Chain, grid{}, coarse{}).Compiled
	sum := make([][]float64, len(want))
	single := make([]float64, len(want))
	params := c.Plan().Model.Params()
	for draw := range draws {
		s := newState(t, c)
		before := testrun.Download(t, c, s)
		run(t, c, s, tokens, step.Settings{Step: draw + 1, Rate: 1, NextRate: 1})
		after := testrun.Download(t, c, s)
		for i, p := range params {
			if sum[i] == nil {
				sum[i] = make([]float64, len(want[i]))
			}
			for j, x := range before["param/"+p.Name] {
				g := float64(x) - float64(after["param/"+p.Name][j])
				sum[i][j] += g / draws
				single[i] += (g - want[i][j]) * (g - want[i][j]) / draws
			}
		}
		s.Close()
	}
	for i, p := range params {
		if len(p.Dims) < 2 || p.Name == "head" { // too few elements, or after all layers
			continue
		}
		off := 0.0
		for j := range want[i] {
			off += (sum[i][j] - want[i][j]) * (sum[i][j] - want[i][j])
		}
		// The mean of independent draws has 1/draws of their variance. The sums have so many terms that
		// chance does not explain a ratio of 1.5.
		if ratio := off / (single[i] / draws); !(ratio < 1.5) || single[i] < 1e-4*norm2(want[i]) {
			t.Errorf("%s: the mean is %.3g times as far off as chance has it; the error of one draw is "+
				"%.2g of the gradient", p.Name, ratio, math.Sqrt(single[i]/norm2(want[i])))
		}
	}
}

// coarse rounds stochastically to multiples of a quarter of the largest magnitude of a row, after
// multiplying columns by random signs that both operands of a product share.
type coarse struct{}

func (coarse) Describe() sdk.Description { return sdk.Description{Name: "coarse"} }

func (coarse) Quantize(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	if !site.Training {
		return sdk.Quantized{Value: x}, nil
	}
	signs := b.RandomBits(site.SharedNoise, 1, site.RowLen()).Shr(b.ConstUint(31)).
		Convert(program.Float).Scale(2).Shift(-1)
	u := b.RandomBits(site.Noise, site.Shape...).Shr(b.ConstUint(16)).Convert(program.Float).
		Shift(0.5).Scale(1.0 / (1 << 16))
	scale := x.Abs().MaxRow().Scale(0.25).Max(b.Const(0x1p-100))
	return sdk.Quantized{Value: x.Mul(signs).Div(scale).Add(u).Floor().Mul(scale).Mul(signs)}, nil
}

// TestBackwardNoise checks that a step as one executable draws the same random bits as the chain,
// also for several micro-batches, and that another step draws other bits.
func TestBackwardNoise(t *testing.T) {
	for name, overrides := range map[string][]string{"one": nil, "three": {"train.accumulate=3"},
		"recomputed": {`train.recompute="blocks"`}} {
		if testing.Short() && name != "three" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			a, b := backwardStep(t, step.Chain, noisy{}, noisy{}, overrides...),
				backwardStep(t, step.Single, noisy{}, noisy{}, overrides...)
			for i := 1; i <= 3; i++ {
				tokens := batches(sgdConfig(t), uint64(10*i), a.Plan().Accumulate)
				set := step.Settings{Step: i, Rate: 0.1, NextRate: 0.1}
				sameOutcome(t, i, run(t, a.Compiled, a.State, tokens, set),
					run(t, b.Compiled, b.State, tokens, set))
			}
			sameBits(t, "after the last step", testrun.Download(t, a.Compiled, a.State),
				testrun.Download(t, b.Compiled, b.State))
		})
	}
	c := backwardStep(t, step.Chain, nil, noisy{})
	tokens := batches(sgdConfig(t), 5, 1)
	before := testrun.Download(t, c.Compiled, c.State)
	first := run(t, c.Compiled, c.State, tokens, step.Settings{Step: 1})
	second := run(t, c.Compiled, c.State, tokens, step.Settings{Step: 2})
	if first.Loss != second.Loss || first.GradNorm == second.GradNorm {
		t.Errorf("losses %v and %v, norms of gradients %v and %v: want equal losses and other gradients",
			first.Loss, second.Loss, first.GradNorm, second.GradNorm)
	}
	sameBits(t, "at a rate of 0", before, testrun.Download(t, c.Compiled, c.State))
}

// TestBackwardSites checks that each operand of the backward pass is listed once, and that the last
// axis of its shape is the axis of the product's sums.
func TestBackwardSites(t *testing.T) {
	cfg := sgdConfig(t)
	plan := planOf(t, cfg, nil, descent{})
	sites, shapes := step.BackwardSites(plan.Model, cfg.Train.Batch, cfg.Model.Context)
	got := map[step.OperandSite][]int{}
	for i, s := range sites {
		if got[s] != nil {
			t.Errorf("%s comes twice", s)
		}
		got[s] = shapes[i]
	}
	tokens := cfg.Train.Batch * cfg.Model.Context
	quantized := 0
	for _, p := range plan.Model.Params() {
		if !p.Quantized {
			continue
		}
		quantized++
		for site, want := range map[step.OperandSite][]int{
			{Product: sdk.ProductInputGradient, Role: sdk.RoleGradient, Name: p.Name}: {tokens, p.Dims[0]},
			{Product: sdk.ProductInputGradient, Role: sdk.RoleWeight, Name: p.Name}: {p.Dims[1],
				p.Dims[0]},
			{Product: sdk.ProductWeightGradient, Role: sdk.RoleGradient, Name: p.Name}: {p.Dims[0], tokens},
		} {
			if !slices.Equal(got[site], want) {
				t.Errorf("%s has the shape %v, want %v", site, got[site], want)
			}
		}
	}
	activations := plan.Model.ActivationSites(cfg.Train.Batch, cfg.Model.Context)
	for _, s := range activations {
		site := step.OperandSite{Product: sdk.ProductWeightGradient, Role: sdk.RoleActivation,
			Name: s.Name}
		if want := []int{s.Width, tokens}; !slices.Equal(got[site], want) {
			t.Errorf("%s has the shape %v, want %v", site, got[site], want)
		}
	}
	if want := 3*quantized + len(activations); len(got) != want {
		t.Errorf("%d sites, want %d: %v", len(got), want, slices.Collect(maps.Keys(got)))
	}
}
