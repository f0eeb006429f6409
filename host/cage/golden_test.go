package cage

import (
	"math"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/testing/golden"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/program/transform"
	"github.com/cage-qat/cage/sdk/spec"
)

// executor runs a program on named tensors: runReference or device.
type executor func(t *testing.T, p *program.Program,
	in map[string]reference.Tensor) map[string]reference.Tensor

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

func TestScheduleGolden(t *testing.T) {
	f := golden.Load(t, "testdata/cage.json")
	for _, table := range f.Top(t).List("schedule_tables") {
		m := CAGE{Form: Decoupled, Variant: Paper, Lambda: table.Float("lam"),
			Silence: table.Float("silence"), Ramp: rampOf(table.String("schedule"))}
		total := table.Int("total")
		got := make([]float64, total)
		for i := range got {
			got[i] = m.Coefficient(i+1, total)
		}
		table.Close("values", got)
	}
}

func rampOf(name string) Ramp {
	if name == "constant" {
		return Constant
	}
	return Linear
}

// TestStepsGolden runs all steps of every golden case with AdamW or SGD, in float64 with the
// reference implementation.
func TestStepsGolden(t *testing.T) {
	ran := 0
	f := golden.Load(t, "testdata/cage.json")
	f.Run(t, func(t *testing.T, c golden.Case) {
		if strings.HasPrefix(c.Params.String("optimizer"), "muon") {
			t.Skip("the optimizer muon is not part of these tests")
		}
		ran++
		runGoldenSteps(t, c, runReference,
			func(o golden.Object, key string, got []float64) { o.Close(key, got) })
	})
	if ran < 9 {
		t.Errorf("only %d cases ran, the file has 9 for AdamW and SGD", ran)
	}
}

// runGoldenSteps trains the case's tensor and passes λ and x of every step to check.
func runGoldenSteps(
	t *testing.T, c golden.Case, run executor, check func(o golden.Object, key string, got []float64),
) {
	x0, grads, lrs := c.Inputs.Array("x0"), c.Inputs.Array("grads"), c.Inputs.Array("lrs")
	q := testQuantizer(t, c.Params.String("quantizer"), x0.Shape)
	opt, values := testOptimizer(c.Params.String("optimizer"))
	optProgram, err := sdk.BuildOptimizer(opt, sdk.Tensor{Name: "x", Shape: x0.Shape, Values: values})
	if err != nil {
		t.Fatal(err)
	}
	total := c.Params.Int("total")
	m := CAGE{Form: Decoupled, Variant: Paper, Lambda: c.Params.Float("lam"),
		Silence: c.Params.Float("silence"), Ramp: rampOf(c.Params.String("schedule"))}
	switch c.Params.String("variant") {
	case "official":
		m.Variant = Official
	case "coupled":
		m.Form = Coupled
	}
	decay := 0.0
	if strings.Contains(c.Params.String("optimizer"), "wd=0.1") {
		decay = 0.1
	}
	tensors := map[string]reference.Tensor{spec.InputX: reference.Floats(x0.Data, x0.Shape...)}
	for _, s := range optProgram.State {
		tensors[spec.StatePrefix+s.Name] = reference.Floats(make([]float64, size(s.Shape)), s.Shape...)
	}
	for i, step := range c.Expected.List("steps") {
		lambda := m.Coefficient(i+1, total)
		check(step, "lam", []float64{lambda})
		rule := Rule{Name: "x", Shape: x0.Shape, Optimizer: optProgram, Quantizer: &q, Clip: true,
			Decay: decay, RateFactor: 1, Method: m, Mode: Mode(m.Form)}
		p, err := rule.Program()
		if err != nil {
			t.Fatal(err)
		}
		next := lrs.Data[min(i+1, lrs.Len()-1)]
		out := run(t, p, stepInputs(t, rule, tensors, q, run, grads.Row(i).Data, map[string]float64{
			spec.InputStep: float64(i + 1), spec.InputRate: lrs.Data[i], InputNextRate: next, InputClip: 1,
			InputLambda: lambda,
		}))
		for name, v := range out {
			tensors[name] = v
		}
		check(step, "x", tensors[spec.InputX].Float64s())
	}
}

func stepInputs(
	t *testing.T, rule Rule, tensors map[string]reference.Tensor, q spec.Quantizer, run executor,
	grad []float64, scalars map[string]float64,
) map[string]reference.Tensor {
	in := map[string]reference.Tensor{}
	for _, i := range rule.Inputs() {
		switch i.Name {
		case spec.InputGradient:
			in[i.Name] = reference.Floats(grad, rule.Shape...)
		case InputQuantized:
			in[i.Name] = run(t, forwardPass(t, rule, q),
				map[string]reference.Tensor{spec.InputX: tensors[spec.InputX]})[spec.OutputValue]
		default:
			if s, ok := scalars[i.Name]; ok {
				in[i.Name] = reference.Float(s)
			} else {
				in[i.Name] = tensors[i.Name]
			}
		}
	}
	return in
}

// forwardPass returns the program for the rule's input "quantized".
func forwardPass(t *testing.T, rule Rule, q spec.Quantizer) *program.Program {
	t.Helper()
	b := program.NewBuilder("forward")
	value := transform.Inline(b, q.Program,
		b.Input(spec.InputX, program.FloatType(rule.Shape...)))[spec.OutputValue]
	if rule.Rotation > 1 {
		value = value.Hadamard(rule.Rotation)
	}
	b.Output(spec.OutputValue, value)
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func size(shape []int) int { return int(program.FloatType(shape...).Size()) }

// TestToyPareto iterates x ← x − α(∇f(x) + λ(x − Q(x))) (paper Eq. 3) on the toy
// problem f = ½(x − ½)², Q = floor, from the middle of every cell, and compares
// the points that it reaches with the closed forms of the golden file.
func TestToyPareto(t *testing.T) {
	f := golden.Load(t, "testdata/cage.json")
	for _, row := range f.Top(t).List("toy_pareto") {
		lambda := row.Float("lam")
		for _, root := range row.List("roots") {
			n := root.Float("cell")
			for _, form := range []Form{Coupled, Decoupled} {
				x := iterateToy(t, form, lambda, n+0.5)
				if !(math.Abs(x-root.Float("x")) <= 1e-9) {
					t.Errorf("λ=%v, cell %v, %s: reached %v, want %v", lambda, n, form, x, root.Float("x"))
				}
			}
		}
	}
}

func iterateToy(t *testing.T, form Form, lambda, x float64) float64 {
	q := testQuantizer(t, "floor", []int{1})
	opt, err := sdk.BuildOptimizer(sgd{}, sdk.Tensor{Name: "x", Shape: []int{1}})
	if err != nil {
		t.Fatal(err)
	}
	rule := Rule{Name: "x", Shape: []int{1}, Optimizer: opt, Quantizer: &q, RateFactor: 1}
	rule.Method, rule.Mode = correcting(form, Paper)
	p, err := rule.Program()
	if err != nil {
		t.Fatal(err)
	}
	for range 400 {
		tensors := map[string]reference.Tensor{spec.InputX: reference.Floats([]float64{x}, 1)}
		in := stepInputs(t, rule, tensors, q, runReference, []float64{x - 0.5}, map[string]float64{
			spec.InputStep: 1, spec.InputRate: 0.1 / (1 + lambda), InputNextRate: 0, InputClip: 1,
			InputLambda: lambda,
		})
		x = runReference(t, p, in)[spec.InputX].Floats[0]
	}
	return x
}

func TestParetoMetricGolden(t *testing.T) {
	paretoMetric(t, runReference, golden.Object.Close)
}

// paretoMetric compares the norms that run computes with those of the golden file.
func paretoMetric(
	t *testing.T, run executor, compare func(point golden.Object, key string, got []float64) bool,
) {
	t.Helper()
	f := golden.Load(t, "testdata/cage.json")
	o := f.Top(t).Object("pareto_metric")
	p, err := ParetoNorm2(Rule{Name: "x", Shape: []int{2}})
	if err != nil {
		t.Fatal(err)
	}
	for _, point := range o.List("points") {
		x, residual := point.Array("x"), point.Array("residual")
		q := []float64{x.Data[0] - residual.Data[0], x.Data[1] - residual.Data[1]}
		out := run(t, p, map[string]reference.Tensor{
			spec.InputGradient: reference.Floats(point.Array("grad").Data, 2),
			spec.InputX:        reference.Floats(x.Data, 2),
			InputQuantized:     reference.Floats(q, 2), InputLambda: reference.Float(o.Float("lam")),
		})
		compare(point, "norm", []float64{math.Sqrt(out[OutputNorm2].Scalar())})
	}
}
