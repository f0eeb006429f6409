package cage

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// The quantizers and optimizers of these tests are written plainly after the
// formulas; the real plugins are tested where they live.

// testQuantizer builds the quantizer that a golden case names.
func testQuantizer(t *testing.T, name string, shape []int) sdk.QuantizerProgram {
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

func (q gridQuantizer) Quantize(b *program.Builder, x program.Value, _ sdk.Site) (sdk.Quantized, error) {
	return sdk.Quantized{Value: x.Scale(1 / q.step).Round().Scale(q.step)}, nil
}

type floorQuantizer struct{}

func (floorQuantizer) Describe() sdk.Description { return sdk.Description{Name: "floor"} }

func (floorQuantizer) Quantize(_ *program.Builder, x program.Value, _ sdk.Site) (sdk.Quantized, error) {
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

func (sgd) Update(_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor) (program.Value, sdk.State, error) {
	return in.Gradient, nil, nil
}

// adam is Adam's direction with β = (0.9, 0.95), ε = 1e-8.
type adam struct{}

func (adam) Describe() sdk.Description { return sdk.Description{Name: "adam"} }

func (adam) Init(b *program.Builder, x program.Value, t sdk.Tensor) (sdk.State, error) {
	return sdk.State{"m": b.Zeros(t.Shape...), "v": b.Zeros(t.Shape...)}, nil
}

func (adam) Update(_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor) (program.Value, sdk.State, error) {
	m := in.State["m"].Scale(0.9).Add(in.Gradient.Scale(0.1))
	v := in.State["v"].Scale(0.95).Add(in.Gradient.Square().Scale(0.05))
	correct := func(beta float64) program.Value { return in.Step.Scale(math.Log(beta)).Expm1().Neg() }
	mHat, vHat := m.Div(correct(0.9)), v.Div(correct(0.95))
	return mHat.Div(vHat.Sqrt().Shift(1e-8)), sdk.State{"m": m, "v": v}, nil
}
