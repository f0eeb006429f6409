package step_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// TestClipping compares steps with and without clipping: below the limit c the bits are the same,
// above it the step is multiplied by c/(‖g‖ + 1e-6).
func TestClipping(t *testing.T) {
	cfg := sgdConfig(t, "train.accumulate=2")
	b := batches(cfg, 1, 2)
	c := testrun.Compile(t, planOf(t, cfg, grid{}, descent{}))
	g := gradients(t, c, b)
	total := 0.0
	for _, v := range g {
		total += norm2(v)
	}
	norm := math.Sqrt(total)
	for _, c := range []struct {
		name  string
		limit float64
	}{{"below the limit", 2 * norm}, {"above the limit", norm / 3}} {
		t.Run(c.name, func(t *testing.T) {
			clipped := testrun.Compile(t,
				planOf(t, testrun.Again(t, cfg, fmt.Sprintf("train.clip=%v", c.limit)), grid{}, descent{}))
			s := newState(t, clipped)
			res := run(t, clipped, s, b, step.Settings{Step: 1, Rate: 1, NextRate: 1})
			near(t, "the norm before clipping", res.GradNorm, norm, 1e-6)
			factor := math.Min(1, c.limit/(res.GradNorm+1e-6))
			x := testrun.Params(clipped.Plan().Model, 3)
			for i, v := range gradients(t, clipped, b) {
				for j := range v {
					// Half a unit in the last place each for the two differences of parameters, whose results are
					// near x, for the factor and for the product.
					allowed := 0x1p-23 * (math.Abs(float64(x[i][j])) + 2*math.Abs(g[i][j]))
					if d := math.Abs(v[j] - factor*g[i][j]); d > allowed || factor == 1 && d != 0 {
						t.Fatalf("parameter %d, element %d moved by %v, want %v × %v", i, j, v[j], factor, g[i][j])
					}
				}
			}
		})
	}
}

// TestIdentityIsUnquantized checks that a quantizer that returns x itself, whose output is its
// input's own buffer, trains like no quantizer, and that the correction of a zero error does
// nothing. Sums have another order: with quantized activations the model is a graph, and without
// them a program.
func TestIdentityIsUnquantized(t *testing.T) {
	cfg := sgdConfig(t)
	with := testrun.Compile(t, planOf(t, cfg, identity{}, descent{}))
	without := testrun.Compile(t, planOf(t, cfg, nil, descent{}))
	a, b := newState(t, with), newState(t, without)
	for i := range 5 {
		set := step.Settings{Step: i + 1, Rate: 0.1, NextRate: 0.1, Lambda: 1, Statistics: i%2 == 0}
		x, y := run(t, with, a, batches(cfg, uint64(i), 1), set),
			run(t, without, b, batches(cfg, uint64(i), 1), set)
		near(t, fmt.Sprintf("step %d: loss", i+1), x.Loss, y.Loss, 1e-6)
	}
	got, want := testrun.Download(t, with, a), testrun.Download(t, without, b)
	for name, values := range want {
		nearTo(t, name, got[name], values)
	}
}

// shared is an optimizer that returns the gradient as direction and as two states, and an unchanged
// state under two names.
type shared struct{ descent }

func (shared) Init(b *program.Builder, x program.Value, t sdk.Tensor) (sdk.State, error) {
	zero := b.Zeros(t.Shape...)
	return sdk.State{"a": zero, "b": zero, "start": x, "twin": x}, nil
}

func (shared) Update(
	_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (program.Value, sdk.State, error) {
	return in.Gradient, sdk.State{"a": in.Gradient, "b": in.Gradient, "start": in.State["start"],
		"twin": in.State["start"]}, nil
}

// TestSharedOutputs checks that programs may return one value under several names, and pass inputs
// through, and that each state tensor has its own buffer.
func TestSharedOutputs(t *testing.T) {
	cfg := sgdConfig(t)
	c, plain := testrun.Compile(t, planOf(t, cfg, nil, shared{})),
		testrun.Compile(t, planOf(t, cfg, nil, descent{}))
	s, want := newState(t, c), newState(t, plain)
	start := testrun.Download(t, c, s)
	for i := range 4 {
		set := step.Settings{Step: i + 1, Rate: 0.1, NextRate: 0.1}
		run(t, c, s, batches(cfg, uint64(i), 1), set)
		run(t, plain, want, batches(cfg, uint64(i), 1), set)
	}
	got, params := testrun.Download(t, c, s), testrun.Download(t, plain, want)
	for name, p := range params {
		param := strings.TrimPrefix(name, "param/")
		state := func(n string) []float32 { return got["state/"+param+"/"+n] }
		sameBits(t, param, map[string][]float32{"x": p, "start": start[name], "twin": start[name],
			"b": state("a")},
			map[string][]float32{"x": got[name], "start": state("start"), "twin": state("twin"),
				"b": state("b")})
	}
}

// TestSkippedStep checks that a step whose loss is not finite keeps every buffer as it is.
func TestSkippedStep(t *testing.T) {
	cfg := testrun.Config(t, testrun.TwoLayers, "model.vocab=32", "train.accumulate=2")
	plan := testrun.Plan(t, cfg)
	plan.Dispatch = step.Chain // for the other dispatch see TestSingle
	c := testrun.Compile(t, plan)
	s := newState(t, c)
	good := batches(cfg, 1, 2)
	run(t, c, s, good, step.Settings{Step: 1, Rate: 1e-3, NextRate: 1e-3})
	before, params := testrun.Download(t, c, s), map[string]*engine.Buffer{}
	for _, r := range plan.Rules {
		params[r.Name] = s.Param(r.Name)
	}
	bad := batches(cfg, 2, 2)
	bad[1][3] = vocab // an id that the model does not have gives NaN
	res := run(t, c, s, bad, step.Settings{Step: 2, Rate: 1e-3, NextRate: 1e-3, Statistics: true,
		ParetoSTE: true, Pareto: true})
	if !res.Skipped || !math.IsNaN(res.Loss) {
		t.Errorf("the result is %+v, want a skipped step with NaN", res)
	}
	for name, p := range params {
		if p.Gone() || s.Param(name) != p {
			t.Fatalf("%s was replaced by a skipped step", name)
		}
	}
	sameBits(t, "before and after the skipped step", before, testrun.Download(t, c, s))
	if res := run(t, c, s, good, step.Settings{Step: 2, Rate: 1e-3, NextRate: 1e-3}); res.Skipped {
		t.Error("the step after it is skipped, too")
	}
	for name, p := range params {
		if !p.Gone() {
			t.Fatalf("the old buffer of parameter %s is kept after an update", name)
		}
	}
}

// TestMistakes checks that calls that do not fit the plan change nothing, and that these calls and
// invalid plans are errors.
func TestMistakes(t *testing.T) {
	cfg := sgdConfig(t)
	c := testrun.Compile(t, planOf(t, cfg, grid{}, descent{}))
	s := newState(t, c)
	before := testrun.Download(t, c, s)
	for name, b := range map[string][][]int32{
		"no micro-batch":   {},
		"two of them":      batches(cfg, 1, 2),
		"a token too many": {append(batches(cfg, 1, 1)[0], 1)},
	} {
		if _, err := c.Step(s, b, step.Settings{Step: 1}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	sameBits(t, "after mistakes", before, testrun.Download(t, c, s))
	bad := map[string]func(p *step.Plan){
		"update rules":            func(p *step.Plan) { p.Rules = p.Rules[1:] },
		"is for":                  func(p *step.Plan) { p.Rules[0], p.Rules[1] = p.Rules[1], p.Rules[0] },
		"differ in whether it is": func(p *step.Plan) { delete(p.Weights, "layers.0.attn.qkv") },
		"each must be at least":   func(p *step.Plan) { p.Accumulate = 0 },
	}
	for want, spoil := range bad {
		plan := planOf(t, cfg, grid{}, descent{})
		spoil(&plan)
		if _, err := step.Compile(testrun.Device(t), plan); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error that says %q", err, want)
		}
	}
}

// counting is an optimizer whose direction is the step number.
type counting struct{ descent }

func (counting) Update(
	b *program.Builder, in sdk.UpdateInput, t sdk.Tensor,
) (program.Value, sdk.State, error) {
	return b.Zeros(t.Shape...).Add(in.Step), nil, nil
}

// TestDecayAndStep checks that x' = (1 − αω)·x − α·t for the direction t, the step number, with
// decay of matrices only, and that the scalars arrive as they were set.
func TestDecayAndStep(t *testing.T) {
	cfg := sgdConfig(t, "train.weight_decay=0.5")
	c := testrun.Compile(t, planOf(t, cfg, nil, counting{}))
	s := newState(t, c)
	const rate, decay, number = 0.25, 0.5, 7 // exact in float32, like all products with them
	before := testrun.Download(t, c, s)
	run(t, c, s, batches(cfg, 1, 1), step.Settings{Step: number, Rate: rate, NextRate: 9})
	after := testrun.Download(t, c, s)
	for _, p := range c.Plan().Model.Params() {
		keep := float32(1)
		if p.Decay {
			keep = 1 - rate*decay
		}
		for i, x := range before["param/"+p.Name] {
			if got, want := after["param/"+p.Name][i], float32(x*keep)-rate*number; got != want {
				t.Fatalf("%s, element %d: %v became %v, want %v", p.Name, i, x, got, want)
			}
		}
	}
}
