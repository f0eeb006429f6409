package step_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// TestQuantized checks that Quantized returns the same bits of a weight as a step uses.
func TestQuantized(t *testing.T) {
	for name, c := range map[string]struct {
		settings string
		rotated  bool
	}{
		"quest":         {`quantizer={plugin="quest"}`, true},
		"quest, none":   {`quantizer={plugin="quest", rotation="none"}`, false},
		"absmax, group": {`quantizer={plugin="absmax", granularity="group", group=8}`, false},
		"mxfp4":         {`quantizer={plugin="mxfp4"}`, false},
		"nvfp4":         {`quantizer={plugin="nvfp4", rotation="16"}`, true},
		"lsq, trained":  {`quantizer={plugin="lsq"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testrun.Config(t, testrun.TwoLayers, "model.vocab=32", `train.rotations="full"`,
				c.settings)
			plan := testrun.Plan(t, cfg)
			k := testrun.Compile(t, plan)
			s, err := k.NewState(t.Context(), 1,
				testrun.Tokens(1, cfg.Train.Batch, cfg.Model.Context+1, vocab))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			want, err := step.QuantizedValues(k, s)
			if err != nil || len(want) == 0 {
				t.Fatalf("%d weights, error %v", len(want), err)
			}
			before, shapes := step.Stages(k), map[string]bool{}
			for _, p := range plan.Model.Params() {
				if want[p.Name] != nil {
					shapes[fmt.Sprint(p.Dims)] = true
				}
			}
			for weight, values := range want {
				q, err := k.Quantized(s, weight)
				if err != nil {
					t.Fatal(err)
				}
				if len(q.Value) != len(values) || len(q.Codes) != len(values) || len(q.Scale) == 0 ||
					(q.Rotation > 0) != c.rotated {
					t.Fatalf("%s: %d values, %d codes, %d scales of shape %v, rotation %d", weight, len(q.Value),
						len(q.Codes), len(q.Scale), q.ScaleShape, q.Rotation)
				}
				for i, v := range q.Value {
					if v != values[i] || math.IsNaN(float64(v)) {
						t.Fatalf("%s: %v at %d, the step has %v", weight, v, i, values[i])
					}
				}
			}
			if n := step.Stages(k) - before; n != len(shapes) || n == len(want) {
				t.Errorf("%d executables for %d weights of %d shapes", n, len(want), len(shapes))
			}
			if _, err := k.Quantized(s, "norm"); err == nil {
				t.Error("a norm was quantized")
			}
		})
	}
}

// everyThird selects every third element of each quantized weight of a plan.
func everyThird(plan step.Plan) []step.WeightElements {
	var chosen []step.WeightElements
	for _, p := range plan.Model.Params() {
		if _, ok := plan.Weights[p.Name]; !ok {
			continue
		}
		c := step.WeightElements{Weight: p.Name}
		for i := 1; i < p.Size(); i += 3 {
			c.Positions = append(c.Positions, int32(i))
		}
		chosen = append(chosen, c)
	}
	return chosen
}

// TestCodeReader compares codes and residuals with those of the reference implementation in
// float64, for several quantizers, after some steps.
func TestCodeReader(t *testing.T) {
	testlevel.Long(t, "compiles many steps")
	for name, overrides := range map[string][]string{
		"quest":        nil,
		"official":     {`quantizer.form="official"`},
		"absmax":       {`quantizer.plugin="absmax"`},
		"mxfp4":        {`quantizer={plugin="mxfp4"}`},
		"nvfp4":        {`quantizer={plugin="nvfp4"}`},
		"lsq, trained": {`quantizer={plugin="lsq"}`},
		"lotion": {`quantizer={}`, `quantizer.weights={plugin="absmax", bits=4}`,
			`method={name="lotion"}`},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testrun.Config(t, append([]string{testrun.TwoLayers, "model.vocab=32"}, overrides...)...)
			plan := testrun.Plan(t, cfg)
			c := testrun.Compile(t, plan)
			s, err := c.NewState(t.Context(), 1,
				testrun.Tokens(1, cfg.Train.Batch, cfg.Model.Context+1, vocab))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for n := range 3 {
				if _, err := c.Step(s, batches(cfg, uint64(n), cfg.Train.Accumulate),
					step.Settings{Step: n + 1, Rate: 1e-2, NextRate: 1e-2}); err != nil {
					t.Fatal(err)
				}
			}
			chosen := everyThird(plan)
			reader, err := c.CodeReader(chosen)
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Close()
			codes, residuals, err := reader.Read(s)
			if err != nil {
				t.Fatal(err)
			}
			checkCodes(t, plan, testrun.Download(t, c, s), chosen, codes, residuals)
		})
	}
}

func checkCodes(
	t *testing.T, plan step.Plan, tensors map[string][]float32, chosen []step.WeightElements,
	codes []int32, residuals []float32,
) {
	t.Helper()
	distinct := map[int32]bool{}
	for _, c := range chosen {
		rule := plan.Rules[slices.IndexFunc(plan.Rules,
			func(r cage.Rule) bool { return r.Name == c.Weight })]
		in := map[string]reference.Tensor{spec.InputX: reference.Floats(wide(tensors["param/"+c.Weight]),
			rule.Shape...)}
		for _, tr := range rule.Quantizer.Trained {
			in[spec.TrainedPrefix+tr.Name] = reference.Floats(wide(tensors["param/"+tr.At(c.Weight)]),
				tr.Shape...)
		}
		out, err := reference.Run(rule.Quantizer.Program, in)
		if err != nil {
			t.Fatal(err)
		}
		x, value, want := in[spec.InputX].Floats, out[spec.OutputValue].Floats,
			out[spec.OutputCodes].Float64s()
		for j, i := range c.Positions {
			if float64(codes[j]) != want[i] {
				t.Fatalf("%s: code %d is %d, want %v", c.Weight, i, codes[j], want[i])
			}
			// Rotations and scales in float32 have errors of some units of 2⁻²⁴ of a value.
			got, want := float64(residuals[j]), x[i]-value[i]
			if math.Abs(got-want) > 1e-6*(math.Abs(x[i])+0.1) {
				t.Fatalf("%s: residual %d is %v, want %v", c.Weight, i, got, want)
			}
			distinct[codes[j]] = true
		}
		codes, residuals = codes[len(c.Positions):], residuals[len(c.Positions):]
	}
	if len(codes)+len(residuals) > 0 || len(distinct) < 5 {
		t.Errorf("%d codes are left over; %d are distinct", len(codes), len(distinct))
	}
}

// TestCodesOfValues checks that, if a quantizer returns no codes, equal values have equal codes and
// different values have different codes.
func TestCodesOfValues(t *testing.T) {
	cfg := sgdConfig(t)
	plan := planOf(t, cfg, grid{}, descent{})
	c := testrun.Compile(t, plan)
	params := testrun.Params(plan.Model, 3)
	s := testrun.Upload(t, c, params)
	chosen := everyThird(plan)[:1]
	reader, err := c.CodeReader(chosen)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	codes, residuals, err := reader.Read(s)
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(plan.Model.Params(),
		func(p architecture.Param) bool { return p.Name == chosen[0].Weight })
	byCode, byValue := map[int32]float64{}, map[float64]int32{}
	for j, i := range chosen[0].Positions {
		x := float64(params[at][i])
		value := math.RoundToEven(x*128)/128 + 0 // −0 becomes 0
		if float64(residuals[j]) != x-value {
			t.Fatalf("residual %d is %v, want %v", i, residuals[j], x-value)
		}
		if v, ok := byCode[codes[j]]; ok && v != value {
			t.Fatalf("the values %v and %v have the code %d", v, value, codes[j])
		}
		if c, ok := byValue[value]; ok && c != codes[j] {
			t.Fatalf("the value %v has the codes %d and %d", value, c, codes[j])
		}
		byCode[codes[j]], byValue[value] = value, codes[j]
	}
	if len(byValue) < 5 {
		t.Errorf("only %d values occur", len(byValue))
	}
}

func TestCodeReaderRefuses(t *testing.T) {
	plan := planOf(t, sgdConfig(t), grid{}, descent{})
	c := testrun.Compile(t, plan)
	weight := everyThird(plan)[0].Weight
	for name, bad := range map[string]struct {
		chosen step.WeightElements
		say    string
	}{
		"no weight": {step.WeightElements{Weight: "final_norm", Positions: []int32{0}},
			"not a quantized weight"},
		"nothing": {step.WeightElements{Weight: weight}, "at least one position"},
		"beyond the end": {step.WeightElements{Weight: weight, Positions: []int32{1 << 30}},
			"at least one position"},
		"before the start": {step.WeightElements{Weight: weight, Positions: []int32{-1}},
			"at least one position"},
	} {
		if _, err := c.CodeReader([]step.WeightElements{bad.chosen}); err == nil ||
			!strings.Contains(err.Error(), bad.say) {
			t.Errorf("%s: got %v, want an error that says %q", name, err, bad.say)
		}
	}
}

// BenchmarkCodeReader compares reading 4096 codes and residuals with a step, at the size of the
// demo.
func BenchmarkCodeReader(b *testing.B) {
	cfg := testrun.Config(b, "model.vocab=256", "model.layers=4", "model.width=128", "model.heads=4",
		"model.hidden=0", "model.context=128", "train.batch=8")
	plan := testrun.Plan(b, cfg)
	c := testrun.Compile(b, plan)
	s := newState(b, c)
	var sizes []int
	for _, c := range everyThird(plan) {
		sizes = append(sizes, 3*len(c.Positions))
	}
	var chosen []step.WeightElements
	for i, positions := range cage.ChooseCoordinates(0, 4096, sizes...) {
		chosen = append(chosen, step.WeightElements{Weight: everyThird(plan)[i].Weight,
			Positions: positions})
	}
	reader, err := c.CodeReader(chosen)
	if err != nil {
		b.Fatal(err)
	}
	defer reader.Close()
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			if _, _, err := reader.Read(s); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("step", func(b *testing.B) {
		tokens := batches(cfg, 1, 1)
		for b.Loop() {
			run(b, c, s, tokens, step.Settings{Step: 1, Rate: 1e-3, NextRate: 1e-3})
		}
	})
}
