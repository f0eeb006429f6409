package step_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/fakequant"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// rotations returns the block size of the rotation of each weight of a plan that stays rotated.
func rotations(c *step.Compiled) map[string]int {
	left := map[string]int{}
	for _, r := range c.Plan().Rules {
		if r.Rotation != 0 {
			left[r.Name] = r.Rotation
		}
	}
	return left
}

// fullOf returns the same configuration with every operand rotated back.
func fullOf(t testing.TB, cfg *config.Config) *config.Config {
	t.Helper()
	return testrun.Again(t, cfg, `train.rotations="full"`)
}

// TestRotations checks which weights of a block stay rotated. The rows of the model have 32
// elements, and 48 in mlp.down.
func TestRotations(t *testing.T) {
	all := map[string]int{"attn.qkv": 32, "attn.out": 32, "mlp.w1": 32, "mlp.w2": 32, "mlp.down": 16}
	without := func(names ...string) map[string]int {
		left := map[string]int{}
		for name, block := range all {
			left[name] = block
		}
		for _, name := range names {
			delete(left, name)
		}
		return left
	}
	override := func(match, settings string) string {
		return `quantizer.overrides=[{match="` + match + `", ` + settings + `}]`
	}
	for name, c := range map[string]struct {
		want      map[string]int
		overrides []string
	}{
		"quest":         {all, nil},
		"olmo2":         {all, []string{`model.kind="olmo2"`}},
		"official form": {all, []string{`quantizer.form="official"`}},
		"two settings": {all, []string{`quantizer.weights={plugin="quest", bits=2}`,
			`quantizer.activations={plugin="quest", bits=8}`}},
		"clipped mxfp4": {without("mlp.down"),
			[]string{`quantizer={plugin="mxfp4", rotation="32", scale_rule="quest"}`,
				override("*.mlp.down*", `plugin="none"`)}},
		"mxfp4 and quest": {all, []string{`quantizer.weights={plugin="quest", rotation="16"}`,
			`quantizer.activations={plugin="nvfp4", rotation="16"}`}},
		"no plain surrogates": {nil, []string{`quantizer={plugin="nvfp4", rotation="16"}`}},
		"no rotation":         {nil, []string{`quantizer={plugin="quest", rotation="none"}`}},
		"mxfp4":               {nil, []string{`quantizer={plugin="mxfp4"}`}},
		"absmax":              {nil, []string{`quantizer={plugin="absmax"}`}},
		"lsq":                 {nil, []string{`quantizer={plugin="lsq"}`}},
		"grid":                {nil, []string{`quantizer={plugin="grid"}`}},
		"full":                {nil, []string{`train.rotations="full"`}},
		"weights only":        {nil, []string{`quantizer.activations={plugin="none"}`}},
		"activations only":    {nil, []string{`quantizer.weights={plugin="none"}`, `method.form="off"`}},
		"one of two weights": {without("mlp.w1", "mlp.w2"),
			[]string{override("*.mlp.w2", `plugin="none"`)}},
		"another block": {without("mlp.w1", "mlp.w2"),
			[]string{override("*.mlp.w1", `plugin="quest", rotation="8"`)}},
		"another input": {without("attn.out"),
			[]string{override("*.attn.out.input", `plugin="absmax"`)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := rotations(testrun.Compile(t,
				testrun.Plan(t, testrun.Config(t, append([]string{testrun.TwoLayers, "model.vocab=32"},
					c.overrides...)...))))
			want := map[string]int{}
			for weight, block := range c.want {
				if name == "mxfp4 and quest" {
					block = 16
				}
				want["layers.0."+weight], want["layers.1."+weight] = block, block
			}
			for weight, block := range want {
				if got[weight] != block {
					t.Errorf("%s is left rotated by %d, want %d", weight, got[weight], block)
				}
			}
			if len(got) != len(want) {
				t.Errorf("left rotated: %v, want %v", got, want)
			}
		})
	}
}

// TestPlanIsKept checks that compiling does not change the caller's plan.
func TestPlanIsKept(t *testing.T) {
	plan := testrun.Plan(t, testrun.Config(t, testrun.TwoLayers, "model.vocab=32"))
	if len(rotations(testrun.Compile(t, plan))) == 0 {
		t.Fatal("nothing is left rotated")
	}
	for _, q := range []*fakequant.Quantizer{plan.Weights["layers.0.attn.qkv"],
		plan.Activations["layers.0.attn.qkv.input"]} {
		if u, err := q.KeepRotated(); err != nil || u == nil {
			t.Errorf("a quantizer of the plan has no rotation any more (%v)", err)
		}
	}
	for _, r := range plan.Rules {
		if r.Rotation != 0 {
			t.Errorf("the rule of %s has the rotation %d", r.Name, r.Rotation)
		}
	}
}

// TestHalfIsFull compares loss, gradients, norm and measures of a step whose operands stay rotated
// with those of a step that rotates them back.
//
// Both are equal in exact arithmetic. In float32 each product differs by some units of 2⁻²⁴ of its
// factors' norms, and some twenty products in sequence lead to a loss or gradient: the tolerance is
// 1e-5 of the largest element. The smallest difference can move an activation to the next code, and
// thus all later values by a whole quantization step; for these seeds this does not happen.
func TestHalfIsFull(t *testing.T) {
	for name, overrides := range map[string][]string{
		"quest":         nil,
		"olmo2":         {`model.kind="olmo2"`},
		"accumulated":   {"train.accumulate=3"},
		"coupled":       {`method.form="coupled"`},
		"official form": {`quantizer.form="official"`},
		"clipped mxfp4": {"model.hidden=64",
			`quantizer={plugin="mxfp4", rotation="32", scale_rule="quest"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := sgdConfig(t, overrides...)
			b := batches(cfg, 1, cfg.Train.Accumulate)
			half := inGraphs(t, cfg, testrun.Plan(t, cfg)).Compiled
			full := inGraphs(t, cfg, testrun.Plan(t, fullOf(t, cfg))).Compiled
			if len(rotations(half)) == 0 || len(rotations(full)) > 0 {
				t.Fatalf("left rotated: %v and %v", rotations(half), rotations(full))
			}
			set := step.Settings{Step: 1, Rate: 1, NextRate: 1, Lambda: 1, Statistics: true, ParetoSTE: true,
				Pareto: true, ParetoLambda: 2}
			x, y := run(t, half, newState(t, half), b, set), run(t, full, newState(t, full), b, set)
			near(t, "loss", x.Loss, y.Loss, 1e-6)
			near(t, "norm", x.GradNorm, y.GradNorm, 1e-5)
			near(t, "‖∇f(Q(x)) + λe‖", x.ParetoSTE, y.ParetoSTE, 1e-5)
			exact := 0.0 // the same numbers, though another executable rotates them back
			if testdevice.Kind() != device.CPU {
				exact = 1e-6
			}
			near(t, "‖∇f(x) + λe‖", x.Pareto, y.Pareto, exact)
			for i := range x.ErrorNorm2 {
				near(t, "Σe²", x.ErrorNorm2[i], y.ErrorNorm2[i], exact)
			}
			sameGradients(t, half, gradients(t, half, b), gradients(t, full, b))
		})
	}
}

// sameGradients allows differences of 1e-5 of the largest element, and the rounding of the
// parameters whose differences the gradients are.
func sameGradients(t *testing.T, c *step.Compiled, got, want [][]float64) {
	t.Helper()
	x := testrun.Params(c.Plan().Model, 3)
	for i, p := range c.Plan().Model.Params() {
		largest, worst, unit := 0.0, 0.0, 0.0
		for _, v := range x[i] {
			unit = max(unit, 0x1p-23*math.Abs(float64(v)))
		}
		for j, v := range want[i] {
			largest = max(largest, math.Abs(v))
			worst = max(worst, math.Abs(got[i][j]-v))
		}
		if !(worst <= 1e-5*largest+unit) || largest == 0 {
			t.Errorf("gradient of %s: the largest difference is %.2g, the largest element %.2g", p.Name,
				worst, largest)
		}
	}
}

// TestSilentSteps checks that, also with operands left rotated, a step with λ_t = 0 has the same
// bits as a step without the method.
func TestSilentSteps(t *testing.T) {
	cfg := testrun.Config(t, testrun.TwoLayers, "model.vocab=32")
	with := testrun.Compile(t, testrun.Plan(t, cfg))
	without := testrun.Compile(t, testrun.Plan(t, testrun.Again(t, cfg, `method.form="off"`)))
	a, b := newState(t, with), newState(t, without)
	for i := range 4 {
		set := step.Settings{Step: i + 1, Rate: 3e-3, NextRate: 3e-3}
		run(t, with, a, batches(cfg, uint64(i), 1), set)
		set.Statistics = true
		run(t, without, b, batches(cfg, uint64(i), 1), set)
	}
	sameBits(t, "λ = 0 and off", testrun.Download(t, with, a), testrun.Download(t, without, b))
}

// TestEvaluation checks that losses are the same with operands left rotated and rotated back.
func TestEvaluation(t *testing.T) {
	cfg := testrun.Config(t, testrun.TwoLayers, "model.vocab=32")
	tokens := batches(cfg, 7, 1)[0]
	losses := func(cfg *config.Config) []float32 {
		c := testrun.Compile(t, testrun.Plan(t, cfg))
		return evaluated(t, c, newState(t, c), tokens)
	}
	half, full := losses(cfg), losses(fullOf(t, cfg))
	for i := range full {
		near(t, "a loss", float64(half[i]), float64(full[i]), 1e-5)
	}
}

// TestPluginPrograms checks in float64 that programs of plugins without their final rotation return
// the rotated Q(x), and for dz the gradient that Q(x) has for the rotated dz. It also checks which
// programs end in a rotation.
func TestPluginPrograms(t *testing.T) {
	const row = -1 // the whole row
	for name, c := range map[string]struct {
		block    int
		settings string
	}{
		"quest":           {row, `quantizer={plugin="quest"}`},
		"quest, blocks":   {16, `quantizer={plugin="quest", rotation="16"}`},
		"quest, official": {row, `quantizer={plugin="quest", form="official", mask="clip"}`},
		"quest, ternary":  {row, `quantizer={plugin="quest", form="ternary", mask="none"}`},
		"mxfp4, quest":    {32, `quantizer={plugin="mxfp4", rotation="32", scale_rule="quest"}`},
		"mxfp4, absmax34": {32,
			`quantizer={plugin="mxfp4", rotation="32", scale_rule="absmax34", mask="trust"}`},
		"mxfp4, ocp":  {32, `quantizer={plugin="mxfp4", rotation="32"}`},
		"nvfp4":       {16, `quantizer={plugin="nvfp4", rotation="16"}`},
		"quest, none": {0, `quantizer={plugin="quest", rotation="none"}`},
		"mxfp4, none": {0, `quantizer={plugin="mxfp4"}`},
		"nvfp4, none": {0, `quantizer={plugin="nvfp4"}`},
		"absmax":      {0, `quantizer={plugin="absmax"}`},
		"lsq":         {0, `quantizer={plugin="lsq"}`},
		"grid":        {0, `quantizer={plugin="grid"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan := testrun.Plan(t, testrun.Config(t, testrun.TwoLayers, "model.vocab=32", "model.hidden=64",
				c.settings))
			for _, r := range plan.Rules {
				if r.Quantizer == nil {
					continue
				}
				got := passes.EndingRotation(r.Quantizer.Program, spec.OutputValue)
				want := c.block
				if want == row {
					want = r.Shape[1]
				}
				if got != want {
					t.Fatalf("%s ends in a rotation of %d, want %d", r.Name, got, want)
				}
				if got > 0 {
					checkUndone(t, r.Quantizer.Program, got)
				}
			}
		})
	}
}

func checkUndone(t *testing.T, p *program.Program, block int) {
	t.Helper()
	half, err := passes.UndoRotation(p, block, spec.OutputValue, spec.OutputSurrogate)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	random := func() reference.Tensor {
		data := make([]float64, p.Inputs[0].Type.Size())
		for i := range data {
			data[i] = rng.NormFloat64()
		}
		return reference.Floats(data, p.Inputs[0].Type.Shape...)
	}
	x, dz := random(), random()
	value := func(p *program.Program) reference.Tensor {
		return runReference(t, p, map[string]reference.Tensor{spec.InputX: x})[spec.OutputValue]
	}
	gradient := func(p *program.Program, dy reference.Tensor) reference.Tensor {
		d, err := autodiff.VJP(p, spec.OutputSurrogate, spec.InputX)
		if err != nil {
			t.Fatal(err)
		}
		return runReference(t, d, map[string]reference.Tensor{spec.InputX: x, autodiff.Prefix +
			spec.OutputSurrogate: dy})[autodiff.Prefix+spec.InputX]
	}
	same64(t, "value", rotated(t, value(half), block), value(p))
	same64(t, "gradient", gradient(half, dz), gradient(p, rotated(t, dz, block)))
}

func rotated(t *testing.T, x reference.Tensor, block int) reference.Tensor {
	t.Helper()
	b := program.NewBuilder("rotation")
	b.Output("z", b.Input("x", x.Type).Hadamard(block))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return runReference(t, p, map[string]reference.Tensor{"x": x})["z"]
}

func runReference(
	t *testing.T, p *program.Program, in map[string]reference.Tensor,
) map[string]reference.Tensor {
	t.Helper()
	out, err := reference.Run(p, in)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func same64(t *testing.T, what string, got, want reference.Tensor) {
	t.Helper()
	for i, w := range want.Floats {
		if !(math.Abs(got.Floats[i]-w) <= 1e-12) { // of numbers around 1
			t.Fatalf("%s: element %d is %v, want %v", what, i, got.Floats[i], w)
		}
	}
}
