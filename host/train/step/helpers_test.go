package step_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

const vocab = 32

// sgdConfig returns a configuration whose step is x − α·g, without momentum, decay and clipping, so
// that gradients are the changes of parameters.
func sgdConfig(t testing.TB, overrides ...string) *config.Config {
	t.Helper()
	base := []string{testrun.TwoLayers, "model.vocab=32", `optimizer.plugin="sgd"`,
		"train.weight_decay=0.0", "train.clip=0.0"}
	return testrun.Config(t, append(base, overrides...)...)
}

// planOf returns the plan of a configuration, with the given quantizer and optimizer instead of
// plugins; a nil quantizer quantizes nothing.
func planOf(t testing.TB, cfg *config.Config, q sdk.Quantizer, o sdk.Optimizer) step.Plan {
	t.Helper()
	m, err := build.Model(cfg)
	if err != nil {
		t.Fatal(err)
	}
	programs := &build.Programs{Weights: map[string]spec.Quantizer{},
		Activations: map[string]spec.Quantizer{}}
	quantize := func(role sdk.Role, name string, shape ...int) spec.Quantizer {
		p, err := sdk.BuildQuantizer(q, sdk.Site{Role: role, Name: name, Shape: shape})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, p := range m.Params() {
		if q != nil && p.Quantized {
			programs.Weights[p.Name] = quantize(sdk.RoleWeight, p.Name, p.Dims...)
		}
	}
	if q != nil {
		for _, s := range m.ActivationSites(build.ReplicaBatch(cfg), cfg.Model.Context) {
			programs.Activations[s.Name] = quantize(sdk.RoleActivation, s.Name, s.Tokens, s.Width)
		}
	}
	programs.Tensors = build.Tensors(cfg, m, programs)
	for i := range programs.Tensors {
		tensor := &programs.Tensors[i]
		if tensor.Optimizer, err = sdk.BuildOptimizer(o,
			sdk.Tensor{Name: tensor.Name, Role: tensor.Role, Shape: tensor.Shape}); err != nil {
			t.Fatal(err)
		}
	}
	plan, err := build.Plan(cfg, m, programs)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// grid is a quantizer that rounds to multiples of 1/128, with a straight-through gradient.
type grid struct{}

func (grid) Describe() sdk.Description { return sdk.Description{Name: "grid"} }

func (grid) Quantize(_ *program.Builder, x program.Value, _ sdk.Site) (sdk.Quantized, error) {
	return sdk.Quantized{Value: x.Scale(128).Round().Scale(1.0 / 128)}, nil
}

// identity is a quantizer that returns x itself.
type identity struct{}

func (identity) Describe() sdk.Description { return sdk.Description{Name: "identity"} }

func (identity) Quantize(_ *program.Builder, x program.Value, _ sdk.Site) (sdk.Quantized, error) {
	return sdk.Quantized{Value: x}, nil
}

// descent is an optimizer whose step is x − α·g.
type descent struct{}

func (descent) Describe() sdk.Description { return sdk.Description{Name: "descent"} }

func (descent) Init(*program.Builder, program.Value, sdk.Tensor) (sdk.State, error) {
	return nil, nil
}

func (descent) Update(
	_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (program.Value, sdk.State, error) {
	return in.Gradient, nil, nil
}

// batches returns n micro-batches for a configuration, drawn from a seed.
func batches(cfg *config.Config, seed uint64, n int) [][]int32 {
	var list [][]int32
	for i := range n {
		list = append(list, testrun.Tokens(seed+uint64(i), cfg.Train.Batch, cfg.Model.Context+1, vocab))
	}
	return list
}

// run runs one step; an error fails the test.
func run(
	t testing.TB, c *step.Compiled, s *step.State, b [][]int32, set step.Settings,
) step.Result {
	t.Helper()
	res, err := c.Step(s, b, set)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// compileOn compiles a plan for a device, and closes the result when the test ends.
func compileOn(t testing.TB, dev *engine.Device, plan step.Plan) *step.Compiled {
	t.Helper()
	c, err := step.Compile(dev, plan)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// newState draws a state from the seed 3, and closes it when the test ends. The tokens are for
// activation quantizers with trained parameters.
func newState(t testing.TB, c *step.Compiled, tokens ...int32) *step.State {
	t.Helper()
	s, err := c.NewState(t.Context(), 3, tokens)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// loaded returns a function that loads these tensors by name.
func loaded(tensors []step.Tensor) step.LoadFunc {
	return func(name string) (step.Tensor, error) {
		for _, x := range tensors {
			if x.Name == name {
				return x, nil
			}
		}
		return step.Tensor{}, fmt.Errorf("there is no tensor %s", name)
	}
}

// evaluated returns the losses of all tokens of the batches in an evaluation.
func evaluated(t testing.TB, c *step.Compiled, s *step.State, batches ...[]int32) []float32 {
	t.Helper()
	e, err := c.Evaluator(s)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var all []float32
	for _, b := range batches {
		losses, err := e.Losses(b)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, losses...)
	}
	return all
}

// gradients returns the gradients of a plan at the initial parameters, per parameter, in float64:
// the change of the parameters in a step with rate 1. Parameters and gradients are of the order of
// 0.05, so the subtraction has an error of 2⁻²⁴·0.05 in each element.
func gradients(t testing.TB, c *step.Compiled, b [][]int32, initial ...int32) [][]float64 {
	t.Helper()
	s := newState(t, c, initial...)
	before := testrun.Download(t, c, s)
	run(t, c, s, b, step.Settings{Step: 1, Rate: 1, NextRate: 1})
	after := testrun.Download(t, c, s)
	var list [][]float64
	for _, p := range c.Plan().Model.Params() {
		x, y := before["param/"+p.Name], after["param/"+p.Name]
		g := make([]float64, len(x))
		for i := range x {
			g[i] = float64(x[i]) - float64(y[i])
		}
		list = append(list, g)
	}
	return list
}

func wide(v []float32) []float64 {
	w := make([]float64, len(v))
	for i, x := range v {
		w[i] = float64(x)
	}
	return w
}

func norm2(v []float64) float64 {
	total := 0.0
	for _, x := range v {
		total += x * x
	}
	return total
}

// near fails the test unless got equals want within a relative tolerance.
func near(t testing.TB, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance*math.Abs(want)) {
		t.Errorf("%s is %.9g, want %.9g: relative difference %.2g", what, got, want,
			math.Abs(got-want)/math.Abs(want))
	}
}

// sameBits fails the test if tensors of two states differ in any bit.
func sameBits(t testing.TB, what string, a, b map[string][]float32) {
	t.Helper()
	if len(a) != len(b) {
		t.Errorf("%s: %d and %d tensors", what, len(a), len(b))
	}
	for name, x := range a {
		y := b[name]
		if len(x) != len(y) {
			t.Errorf("%s: %s has %d and %d elements", what, name, len(x), len(y))
			continue
		}
		for i := range x {
			if math.Float32bits(x[i]) != math.Float32bits(y[i]) {
				t.Errorf("%s: %s differs at %d: %v and %v", what, name, i, x[i], y[i])
				break
			}
		}
	}
}

// TestMain lets the tests share plugins, and fails if goroutines are still running at the end.
func TestMain(m *testing.M) { testrun.Main(m) }
