package inspect_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/train/inspect"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// halves rounds to multiples of 1/2 from −1 to 1, with noise if asked, and a trained factor of 1.
type halves struct{ noise, trained, mixed bool }

func (halves) Describe() sdk.Description { return sdk.Description{Name: "halves"} }

func (halves) InitTrained(b *program.Builder, _ program.Value, _ sdk.Site) (sdk.State, error) {
	return sdk.State{"gain": b.Const(1)}, nil
}

func (h halves) Quantize(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	ratio := x.Scale(2)
	if h.noise && site.Training {
		ratio = ratio.Add(b.RandomBits(site.Noise, site.Shape...).Convert(program.Float).Scale(0x1p-32))
	}
	if h.mixed {
		ratio = ratio.MatMul(b.Table([]float64{1, 0, 0, 1}, 2, 2))
	}
	codes := ratio.Round().Clip(-2, 2)
	inside := x.Abs().Le(b.Const(1))
	out := sdk.Quantized{Value: codes.Scale(0.5), Codes: codes, Mask: inside, Surrogate: inside.Select(x, b.Const(0))}
	if h.trained {
		out.Surrogate = out.Surrogate.Mul(site.Trained["gain"])
	}
	return out, nil
}

// plain is halves without trained parameters.
type plain struct{ h halves }

func (plain) Describe() sdk.Description { return sdk.Description{Name: "plain"} }
func (p plain) Quantize(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	return p.h.Quantize(b, x, site)
}

func build(t *testing.T, q sdk.Quantizer, shape ...int) spec.Quantizer {
	t.Helper()
	out, err := sdk.BuildQuantizer(q, sdk.Site{Role: sdk.RoleWeight, Name: "w", Shape: shape})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestRun(t *testing.T) {
	x := reference.Floats([]float64{0.3, -0.8, 1.4, 0}, 2, 2)
	r, err := inspect.Run(build(t, halves{trained: true}, 2, 2), x, 1, true)
	if err != nil {
		t.Fatal(err)
	}
	if want := []float64{0.5, -1, 1, 0}; !slices.Equal(r.Value.Floats, want) {
		t.Errorf("the value is %v, want %v", r.Value.Floats, want)
	}
	if want := math.Sqrt(0.04+0.04+0.16) / math.Sqrt(0.09+0.64+1.96); math.Abs(r.Error-want) > 1e-12 || math.Abs(r.Largest-0.4) > 1e-12 {
		t.Errorf("the error is %v, at most %v", r.Error, r.Largest)
	}
	dy, dx := r.DY.Floats, r.Gradients["d.x"].Floats
	if want := []float64{dy[0], dy[1], 0, dy[3]}; !slices.Equal(dx, want) {
		t.Errorf("the gradient is %v, want %v", dx, want)
	}
	if want := 0.3*dy[0] - 0.8*dy[1]; math.Abs(r.Gradients["d.trained.gain"].Scalar()-want) > 1e-12 || r.Trained["trained.gain"].Scalar() != 1 {
		t.Errorf("trained %v, gradient %v, want %v", r.Trained, r.Gradients["d.trained.gain"], want)
	}
}

// following rounds to multiples of the largest magnitude of the step before.
type following struct{}

func (following) Describe() sdk.Description { return sdk.Description{Name: "following"} }

func (following) InitState(_ *program.Builder, x program.Value, _ sdk.Site) (sdk.State, error) {
	return sdk.State{"largest": x.Abs().MaxAll()}, nil
}

func (following) Quantize(_ *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	largest := site.State["largest"]
	return sdk.Quantized{Value: x.Div(largest).Round().Mul(largest), Next: sdk.State{"largest": largest.Add(x.Abs().MaxAll()).Scale(0.75)}}, nil
}

// TestState: state starts from x.
func TestState(t *testing.T) {
	r, err := inspect.Run(build(t, following{}, 1, 3), reference.Floats([]float64{0.5, -2, 1.5}, 1, 3), 1, true)
	if err != nil {
		t.Fatal(err)
	}
	if want := []float64{0, -2, 2}; !slices.Equal(r.Value.Floats, want) || r.State["kept.largest"].Scalar() != 2 || r.Next["kept.largest"].Scalar() != 3 {
		t.Errorf("the value is %v, want %v; the state %v, then %v", r.Value.Floats, want, r.State, r.Next)
	}
	if len(r.Trained) > 0 || !slices.Equal(r.Gradients["d.x"].Floats, r.DY.Floats) {
		t.Errorf("trained %v, the gradient is %v, want %v", r.Trained, r.Gradients["d.x"].Floats, r.DY.Floats)
	}
}

// level rounds to multiples of the largest mean of a column, of either operand.
type level struct{}

func (level) Describe() sdk.Description { return sdk.Description{Name: "level"} }

func (level) InitState(_ *program.Builder, _ program.Value, site sdk.Site) (sdk.State, error) {
	return sdk.State{"step": site.Activations.Mean.MaxAll().Max(site.Weights.Mean.MaxAll())}, nil
}

func (level) Quantize(_ *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	step := site.State["step"]
	return sdk.Quantized{Value: x.Div(step).Round().Mul(step), Next: sdk.State{"step": step.Scale(0.5)}}, nil
}

// TestColumns: statistics of columns are those of x.
func TestColumns(t *testing.T) {
	r, err := inspect.Run(build(t, level{}, 2, 2), reference.Floats([]float64{1, -4, 0, 2}, 2, 2), 1, false)
	if err != nil || r.State["kept.step"].Scalar() != 3 || r.Next["kept.step"].Scalar() != 1.5 {
		t.Errorf("the state is %v, then %v, %v", r.State, r.Next, err)
	}
}

// TestNoise: equal seeds give equal noise, and others another.
func TestNoise(t *testing.T) {
	shape := []int{8, 32}
	q, x := build(t, plain{halves{noise: true}}, shape...), reference.Floats(inspect.Random(shape, 3), shape...)
	var got [3][]float64
	for i, seed := range []uint64{1, 1, 2} {
		r, err := inspect.Run(q, x, seed, false)
		if err != nil {
			t.Fatal(err)
		}
		got[i] = r.Value.Floats
	}
	if !slices.Equal(got[0], got[1]) || slices.Equal(got[0], got[2]) {
		t.Error("noise does not follow the seed")
	}
}

func TestPasses(t *testing.T) {
	parts, err := inspect.Passes(build(t, plain{}, 4, 2), []int{4, 2})
	if err != nil {
		t.Fatal(err)
	}
	if len(parts) != 2 || parts[0].Name != "forward" || parts[1].Name != "backward" {
		t.Fatalf("the passes are %v", parts)
	}
	// 2·x, round, clip, ·½, |x| and its comparison; x is read, the value and the mask are written.
	if f := parts[0]; f.Operations != 6 || f.Bytes != 9 || f.Passes != 1 || f.Kernel != "one kernel" || f.Text == nil {
		t.Errorf("forward: %+v", f)
	}
	parts, err = inspect.Passes(build(t, plain{halves{mixed: true}}, 4, 2), []int{4, 2})
	if err != nil || !strings.HasPrefix(parts[0].Kernel, "operations, because ") || parts[0].Products != 2 {
		t.Errorf("with a product: %+v, %v", parts[0], err)
	}
}
