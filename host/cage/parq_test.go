package cage

import (
	"math"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/internal/testing/golden"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// packed rounds to numbers times a scale of each row, and declares the grid of these numbers: the
// integers from −3 to 3, or E2M1.
type packed struct{ floats bool }

func (packed) Describe() sdk.Description { return sdk.Description{Name: "packed"} }

func (q packed) Quantize(b *program.Builder, x program.Value, _ sdk.Site) (sdk.Quantized, error) {
	top, grid := 3.0, sdk.Integers(-3, 3, 0)
	if q.floats {
		top, grid = 6, sdk.E2M1(0)
	}
	scale := x.Abs().MaxRow().Scale(1 / top)
	r := x.Div(scale)
	codes := r.Round()
	if q.floats { // steps of ½ up to 2, of 1 up to 4, then 6
		a := r.Abs()
		step := a.Gt(b.Const(4)).Select(b.Const(2), a.Gt(b.Const(2)).Select(b.Const(1), b.Const(0.5)))
		codes = r.Div(step).Round().Mul(step)
	}
	value := codes.Mul(scale)
	if q.floats { // bit patterns: 4, 5, 6 and 7 for 2, 3, 4 and 6
		a := codes.Abs()
		a = a.Scale(2).Sub(above(a, 2)).Sub(above(a, 4).Scale(0.5))
		codes = codes.Lt(b.Const(0)).Select(a.Shift(8), a)
	}
	return sdk.Quantized{Value: value, Codes: codes, Scale: scale, Grid: grid}, nil
}

func above(a program.Value, bound float64) program.Value {
	return a.Shift(-bound).Clip(0, math.Inf(1))
}

func (q packed) Unpack(
	b *program.Builder, codes, scale program.Value, _ sdk.Site,
) (program.Value, error) {
	if q.floats {
		negative := codes.Ge(b.Const(8))
		a := negative.Select(codes.Shift(-8), codes)
		numbers := a.Add(above(a, 4)).Add(above(a, 6).Scale(2)).Scale(0.5)
		codes = negative.Select(numbers.Neg(), numbers)
	}
	return codes.Mul(scale), nil
}

// trainingWith returns the quantizer that a training with PARQ uses for a weight.
func trainingWith(t *testing.T, m PARQ, q sdk.Quantizer, total int, shape ...int) spec.Quantizer {
	t.Helper()
	built, err := sdk.BuildQuantizer(q, sdk.Site{Role: sdk.RoleWeight, Name: "x", Shape: shape})
	if err != nil {
		t.Fatal(err)
	}
	changed, err := m.Forward(&Weight{Quantizer: built, Unpack: built.Unpack}, total)
	if err != nil {
		t.Fatal(err)
	}
	if changed.ForEvaluation().Program.Hash() != built.Program.Hash() {
		t.Error("evaluations have another quantizer")
	}
	return changed
}

// TestPARQGolden compares the weights that training uses with those of the authors' maps.
func TestPARQGolden(t *testing.T) {
	f := golden.Load(t, "testdata/parq.json")
	plugintest.Each(t, func(t *testing.T, machine plugintest.Bench) {
		f.Run(t, func(t *testing.T, c golden.Case) {
			total := c.Params.Int("total")
			m := PARQ{Map: c.Params.String("map"), AnnealStart: c.Params.Float("start") / float64(total),
				AnnealEnd: c.Params.Float("end") / float64(total),
				Steepness: c.Params.Float("steepness"), Center: c.Params.Float("center")}
			x := c.Inputs.Array("x")
			q := trainingWith(t, m, packed{floats: c.Params.String("grid") == "e2m1"}, total, x.Shape...)
			want := c.Expected.Array("w")
			for k := range total {
				out := machine.Run(t, q.Program, map[string]reference.Tensor{
					spec.InputX:    reference.Floats(x.Data, x.Shape...),
					spec.InputStep: reference.Float(float64(k + 2)),
				})
				plugintest.Near(t, "w", out[spec.OutputValue].Float64s(), want.Row(k).Data, 3e-6)
				if !c.Expected.Has("inverse_slope") {
					continue
				}
				if got, want := 1-m.Coefficient(k+2, total), c.Expected.Array(
					"inverse_slope").Data[k]; math.Abs(got-want) > 1e-12 {
					t.Errorf("k = %d: the inverse slope is %v, want %v", k, got, want)
				}
			}
		})
	})
}

// TestPARQRefuses checks that a quantizer with unknown levels is an error, except with the map
// binary_relax.
func TestPARQRefuses(t *testing.T) {
	q := testQuantizer(t, "fixed grid 0.25", []int{2, 8})
	_, err := DefaultPARQ.Forward(&Weight{Quantizer: q, Unpack: q.Unpack}, 10)
	if err == nil || !strings.Contains(err.Error(), "does not declare the values") ||
		!strings.Contains(err.Error(), `map = "binary_relax"`) {
		t.Errorf("error %v", err)
	}
	m := DefaultPARQ
	m.Map = "binary_relax"
	if _, err := m.Forward(&Weight{Quantizer: q, Unpack: q.Unpack}, 10); err != nil {
		t.Error(err)
	}
}

// TestPARQStatistics checks that the recorded error is that of Q(x), not of the map, and that the
// step is the same without statistics.
func TestPARQStatistics(t *testing.T) {
	rule := testRule(t, sgd{}, "fixed grid 0.25", 2, 4)
	rule.Method, rule.Mode = DefaultPARQ, Idle
	x := []float64{0.1, -0.2, 0.3, 0.4, 0, 0.26, 1, -0.76}
	run := func(rule Rule) map[string]reference.Tensor {
		p, err := rule.Program()
		if err != nil {
			t.Fatal(err)
		}
		in := map[string]reference.Tensor{spec.InputX: reference.Floats(x, 2, 4)}
		return runReference(t, p, stepInputs(t, rule, in, *rule.Quantizer, runReference,
			make([]float64, 8),
			map[string]float64{spec.InputStep: 1, spec.InputRate: 1, InputNextRate: 1, InputClip: 1,
				InputLambda: 0.5}))
	}
	plain := run(rule)
	rule.Statistics = true
	if rule.NeedsQuantized() {
		t.Error("it reads the value of the forward pass, which is not Q(x)")
	}
	out := run(rule)
	want := 0.0
	for _, v := range x {
		e := v - 0.25*math.RoundToEven(v/0.25)
		want += e * e
	}
	plugintest.Near(t, "Σe²", out[OutputErrorNorm2].Floats, []float64{want}, 1e-12)
	plugintest.Near(t, "x", out[spec.InputX].Floats, plain[spec.InputX].Floats, 0)
}
