package inspect_test

import (
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/train/inspect"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
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
