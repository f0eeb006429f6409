package cage

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/internal/testing/golden"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// TestProgramsStay compares the programs of a rule's settings with the digests below, one for each
// form, variant and quantizer, to show that a refactoring changes no program. After an intended
// change of the method, replace the digests.
func TestProgramsStay(t *testing.T) {
	sampleOrAll := testlevel.Choose(0, 1)
	for _, form := range []Form{Off, Coupled, Decoupled} {
		for _, variant := range []Variant{Paper, Official} {
			for name, q := range map[string]sdk.Quantizer{"none": nil, "grid": gridQuantizer{0.25},
				"homogeneous": quest4{}, "trained": learnedStep{}} {
				rule := Rule{Name: "x", Shape: []int{4, 8}, RateFactor: 1}
				rule.Method, rule.Mode = correcting(form, variant)
				if q != nil {
					p, err := sdk.BuildQuantizer(q, sdk.Site{Role: sdk.RoleWeight, Name: "x", Shape: rule.Shape})
					if err != nil {
						t.Fatal(err)
					}
					rule.Quantizer = &p
				}
				key := fmt.Sprint(form, " ", variant, " ", name)
				if got, want := digest(t, rule), programDigests[key][sampleOrAll]; got != want {
					t.Errorf("%s: other programs than before, with the digest %s, want %s", key, got, want)
				}
			}
		}
	}
}

// digest hashes the programs of a rule under combinations of its other seven settings: all
// 128, or 16 among which any three settings have all their combinations.
func digest(t *testing.T, rule Rule) string {
	t.Helper()
	h := sha256.New()
	for _, opt := range []sdk.Optimizer{sgd{}, adam{}, watcher{}} {
		o, err := sdk.BuildOptimizer(opt, sdk.Tensor{Name: "x", Shape: rule.Shape})
		if err != nil {
			t.Fatal(err)
		}
		rule.Optimizer = o
		for i := range 1 << 7 {
			bit := func(n int) bool { return i>>n&1 == 1 }
			inSample := bit(4) == (bit(0) != bit(1) != bit(2)) && bit(5) == (bit(1) != bit(2) != bit(3)) &&
				bit(6) == (bit(0) != bit(1) != bit(3))
			if !testlevel.Choose(inSample, true) {
				continue
			}
			r := rule
			r.Clip, r.Statistics, r.Observed, r.DecayLast = bit(0), bit(1) && r.Quantizer != nil, bit(2),
				bit(3)
			if bit(4) {
				r.Decay, r.RateFactor = 0.1, 0.5
			}
			if bit(5) && r.Mode == Idle {
				r.Method, r.Mode = LOTION{Coeff: 3, FisherDecay: 0.9, Bits: 4, Denom: "power"}, smoothing
			}
			if bit(6) {
				r.Rotation = 4
			}
			writeHashes(t, h, r)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// writeHashes writes the hashes of a rule's programs, and their inputs, measures and state.
func writeHashes(t *testing.T, w io.Writer, r Rule) {
	t.Helper()
	update, err := r.Program()
	if err != nil {
		t.Fatal(err)
	}
	observe, err := r.others(Observing)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range append([]*program.Program{update}, observe...) {
		fmt.Fprintln(w, p.Hash())
	}
	pareto, err := ParetoNorm2(r)
	if err != nil {
		t.Fatal(err)
	}
	type tensor struct {
		Name  string
		Shape []int
	}
	var state []tensor
	for _, s := range r.State() {
		state = append(state, tensor{s.Name, s.Shape})
	}
	fmt.Fprintln(w, pareto.Hash(), r.Inputs(), measuresOf(r), state, r.NeedsQuantized())
}

// learnedStep is a quantizer with a trained parameter.
type learnedStep struct{}

func (learnedStep) Describe() sdk.Description { return sdk.Description{Name: "learned"} }

func (learnedStep) InitTrained(_ *program.Builder, x program.Value, _ sdk.Site) (sdk.State, error) {
	return sdk.State{"step": x.Abs().MaxRow().Scale(0.25)}, nil
}

func (learnedStep) Quantize(
	_ *program.Builder, x program.Value, site sdk.Site,
) (sdk.Quantized, error) {
	step := site.Trained["step"]
	return sdk.Quantized{Value: x.Div(step).Round().Mul(step), Surrogate: x.Mul(step)}, nil
}

// watcher is an optimizer that observes gradients.
type watcher struct{}

func (watcher) Describe() sdk.Description { return sdk.Description{Name: "watcher"} }

func (watcher) Init(b *program.Builder, _ program.Value, t sdk.Tensor) (sdk.State, error) {
	return sdk.State{"seen": b.Zeros(t.Shape...), "scale": b.Const(1)}, nil
}

func (watcher) Observe(_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor) (sdk.State, error) {
	return sdk.State{"seen": in.State["seen"].Add(in.Gradient.Square())}, nil
}

func (watcher) Refresh(
	_ *program.Builder, in sdk.RefreshInput, _ bool, _ sdk.Tensor,
) (sdk.State, error) {
	return sdk.State{"scale": in.State["seen"].SumAll()}, nil
}

func (watcher) RefreshAt(sdk.Tensor) sdk.Due { return sdk.Due{First: 1, Next: 3, Every: 2} }

func (watcher) Update(
	_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (program.Value, sdk.State, error) {
	return in.Gradient.Mul(in.State["scale"]), in.State, nil
}

// programDigests holds the digests of the sample, and of all combinations.
var programDigests = map[string][2]string{
	"coupled official grid":          {"3a55f15759628166", "7a924cc86b83db1d"},
	"coupled official homogeneous":   {"3a55f15759628166", "7a924cc86b83db1d"},
	"coupled official none":          {"a9298c8b22c387d4", "d6e21286148e7c3c"},
	"coupled official trained":       {"3a55f15759628166", "7a924cc86b83db1d"},
	"coupled paper grid":             {"3a55f15759628166", "7a924cc86b83db1d"},
	"coupled paper homogeneous":      {"3a55f15759628166", "7a924cc86b83db1d"},
	"coupled paper none":             {"a9298c8b22c387d4", "d6e21286148e7c3c"},
	"coupled paper trained":          {"3a55f15759628166", "7a924cc86b83db1d"},
	"decoupled official grid":        {"f3fb5d7bec1c91ff", "b29980875c667aee"},
	"decoupled official homogeneous": {"3ff7ac661a89fcbb", "68e840014c3903a0"},
	"decoupled official none":        {"a9298c8b22c387d4", "d6e21286148e7c3c"},
	"decoupled official trained":     {"4e4f4472095b8867", "df5dbd251649f2af"},
	"decoupled paper grid":           {"6371c9abff6a4475", "a262328659024575"},
	"decoupled paper homogeneous":    {"c8b84481663bfee2", "58cc43d6a009869b"},
	"decoupled paper none":           {"a9298c8b22c387d4", "d6e21286148e7c3c"},
	"decoupled paper trained":        {"0644ac3d77eadba3", "d07c39949b850842"},
	"off official grid":              {"8365ca1b67422ffa", "06b4a6c1cf892d06"},
	"off official homogeneous":       {"8365ca1b67422ffa", "06b4a6c1cf892d06"},
	"off official none":              {"a9298c8b22c387d4", "d6e21286148e7c3c"},
	"off official trained":           {"8365ca1b67422ffa", "06b4a6c1cf892d06"},
	"off paper grid":                 {"8365ca1b67422ffa", "06b4a6c1cf892d06"},
	"off paper homogeneous":          {"8365ca1b67422ffa", "06b4a6c1cf892d06"},
	"off paper none":                 {"a9298c8b22c387d4", "d6e21286148e7c3c"},
	"off paper trained":              {"8365ca1b67422ffa", "06b4a6c1cf892d06"},
}

// measuresOf returns the scalar outputs of a rule's program, in order.
func measuresOf(r Rule) []string {
	var list []string
	if r.Statistics {
		list = append(list, OutputErrorNorm2, OutputValueNorm2)
	}
	if r.Quantizer != nil && r.Mode != Idle && r.Mode != smoothing {
		list = append(list, OutputUncorrected)
	}
	return list
}

// The quantizers and optimizers of these tests follow the formulas in the simplest way. The real
// plugins have separate tests.

// testQuantizer builds the quantizer that a golden case names.
func testQuantizer(t *testing.T, name string, shape []int) spec.Quantizer {
	t.Helper()
	var q sdk.Quantizer
	var grid float64
	switch {
	case name == "floor":
		q = floorQuantizer{}
	case strings.HasPrefix(name, "paper QuEST 4-bit per row, no rotation"):
		q = quest4{}
	default:
		if _, err := fmt.Sscanf(name, "fixed grid %g", &grid); err != nil {
			t.Fatalf("unknown quantizer %q", name)
		}
		q = gridQuantizer{grid}
	}
	p, err := sdk.BuildQuantizer(q, sdk.Site{Role: sdk.RoleWeight, Name: "x", Shape: shape})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// gridQuantizer rounds to the nearest multiple of a fixed step.
type gridQuantizer struct{ step float64 }

func (gridQuantizer) Describe() sdk.Description { return sdk.Description{Name: "grid"} }

func (q gridQuantizer) Quantize(
	b *program.Builder, x program.Value, _ sdk.Site,
) (sdk.Quantized, error) {
	return sdk.Quantized{Value: x.Scale(1 / q.step).Round().Scale(q.step)}, nil
}

type floorQuantizer struct{}

func (floorQuantizer) Describe() sdk.Description { return sdk.Description{Name: "floor"} }

func (floorQuantizer) Quantize(
	_ *program.Builder, x program.Value, _ sdk.Site,
) (sdk.Quantized, error) {
	return sdk.Quantized{Value: x.Floor()}, nil
}

// quest4 is the 4-bit QuEST quantizer of the paper without rotation.
type quest4 struct{}

func (quest4) Describe() sdk.Description { return sdk.Description{Name: "quest4"} }

func (quest4) Quantize(_ *program.Builder, x program.Value, _ sdk.Site) (sdk.Quantized, error) {
	s := x.Square().MeanRow().Sqrt().Scale(2.370255550006294 / 7)
	return sdk.Quantized{Value: x.Div(s).Round().Clip(-8, 7).Mul(s), Homogeneous: true}, nil
}

func testOptimizer(name string) (sdk.Optimizer, sdk.Values) {
	if strings.HasPrefix(name, "adamw") {
		return adam{}, sdk.Values{}
	}
	return sgd{}, sdk.Values{}
}

type sgd struct{}

func (sgd) Describe() sdk.Description { return sdk.Description{Name: "sgd"} }

func (sgd) Init(*program.Builder, program.Value, sdk.Tensor) (sdk.State, error) { return nil, nil }

func (sgd) Update(
	_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (program.Value, sdk.State, error) {
	return in.Gradient, nil, nil
}

// adam is Adam's direction with β = (0.9, 0.95), ε = 1e-8.
type adam struct{}

func (adam) Describe() sdk.Description { return sdk.Description{Name: "adam"} }

func (adam) Init(b *program.Builder, x program.Value, t sdk.Tensor) (sdk.State, error) {
	return sdk.State{"m": b.Zeros(t.Shape...), "v": b.Zeros(t.Shape...)}, nil
}

func (adam) Update(
	_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (program.Value, sdk.State, error) {
	m := in.State["m"].Scale(0.9).Add(in.Gradient.Scale(0.1))
	v := in.State["v"].Scale(0.95).Add(in.Gradient.Square().Scale(0.05))
	correct := func(beta float64) program.Value { return in.Step.Scale(math.Log(beta)).Expm1().Neg() }
	mHat, vHat := m.Div(correct(0.9)), v.Div(correct(0.95))
	return mHat.Div(vHat.Sqrt().Shift(1e-8)), sdk.State{"m": m, "v": v}, nil
}

// device runs a program as training does: lowered, compiled for the CPU, in float32.
func device(
	t *testing.T, p *program.Program, in map[string]reference.Tensor,
) map[string]reference.Tensor {
	t.Helper()
	return plugintest.CPU(t).Run(t, p, in)
}

// single is the tolerance of the golden values in float32. The cases have six steps and
// elements of up to 1.2; inputs are rounded to float32, and each step adds a few
// roundings of 2⁻²⁴ of x. 1e-6 absolute and relative covers that. It is far below the
// effect of a single element that is rounded to another point of the grid: a step of the
// grid, about 0.25, times α·λ_t, at least 0.01.
var single = golden.Tolerance{Abs: 1e-6, Rel: 1e-6}

// TestStepsGoldenOnTheDevice is TestStepsGolden on the device.
func TestStepsGoldenOnTheDevice(t *testing.T) {
	ran := 0
	f := golden.Load(t, "testdata/cage.json")
	f.Run(t, func(t *testing.T, c golden.Case) {
		if strings.HasPrefix(c.Params.String("optimizer"), "muon") {
			t.Skip("the optimizer muon is not part of these tests")
		}
		ran++
		runGoldenSteps(t, c, device, func(o golden.Object, key string, got []float64) {
			if key == "lam" { // computed on the host, in float64
				o.Close(key, got)
				return
			}
			o.CloseWithin(single, key, got)
		})
	})
	if ran < 9 {
		t.Errorf("only %d cases ran, the file has 9 for AdamW and SGD", ran)
	}
}

// TestParetoMetricOnTheDevice is TestParetoMetricGolden on the device.
func TestParetoMetricOnTheDevice(t *testing.T) {
	paretoMetric(t, device,
		func(point golden.Object, key string, got []float64) bool {
			return point.CloseWithin(single, key, got)
		})
}

// TestSumsOverLargeTensors checks that a sum of a million squares is accurate to 1e-5 in float32.
// (A single running sum is off by 7e-5, and by percents in the largest layers.)
func TestSumsOverLargeTensors(t *testing.T) {
	testlevel.Long(t, "the tensors are large")
	const rows, columns = 1024, 1024
	p, err := ParetoNorm2(Rule{Name: "x", Shape: []int{rows, columns}})
	if err != nil {
		t.Fatal(err)
	}
	full := func(v float64) reference.Tensor {
		return reference.Floats(slices.Repeat([]float64{v}, rows*columns), rows, columns)
	}
	out := device(t, p, map[string]reference.Tensor{
		spec.InputGradient: full(0.1), spec.InputX: full(0), InputQuantized: full(0),
		InputLambda: reference.Float(1),
	})
	want := rows * columns * float64(float32(0.1)) * float64(float32(0.1))
	if got := out[OutputNorm2].Scalar(); !(math.Abs(got-want) <= 1e-5*want) {
		t.Errorf("the sum is %v, want %v: relative difference %.2g", got, want, math.Abs(got-want)/want)
	}
}
