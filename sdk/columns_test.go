package sdk_test

import (
	"strings"
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/client"
	pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"
	"github.com/cage-qat/cage/sdk/program"
)

// smoothed has state and a trained parameter that it computes from column statistics.
type smoothed struct{ quantizer }

func (smoothed) InitState(_ *program.Builder, _ program.Value, site sdk.Site) (sdk.State, error) {
	return sdk.State{"by": site.Activations.Max.Div(site.Weights.Max)}, nil
}

func (smoothed) InitTrained(_ *program.Builder, x program.Value, site sdk.Site) (sdk.State, error) {
	return sdk.State{"step": x.Abs().MaxAll().Mul(site.Weights.Mean.MaxAll())}, nil
}

var smooth = smoothed{func(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized,
	error) {
	for _, v := range []program.Value{site.Activations.Max, site.Activations.Mean, site.Weights.Max,
		site.Weights.Mean} {
		if v.Valid() {
			return sdk.Quantized{}, sdk.Refuse("statistics are there in Quantize")
		}
	}
	by := site.State["by"]
	return sdk.Quantized{Value: x.Mul(by).Round().Mul(site.Trained["step"]).Div(by),
		Surrogate: x.Mul(site.Trained["step"]), Next: site.State}, nil
}}

func TestColumns(t *testing.T) {
	out, err := sdk.BuildQuantizer(smooth, weight)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		p              *program.Program
		takes, returns string
	}{
		{out.Program, "x trained.step kept.by", "value surrogate"},
		{out.Next, "x trained.step kept.by", "kept.by"},
		{out.InitState, "x activations.max weights.max", "kept.by"},
		{out.Init, "x weights.mean", "trained.step"},
	} {
		if in, o := inputNames(c.p), outputNames(c.p); in != c.takes || o != c.returns {
			t.Errorf("%s takes %s and returns %s, want %s and %s", c.p.Name, in, o, c.takes, c.returns)
		}
	}
	if plain, err := sdk.BuildQuantizer(averages, weight); err != nil || plain.Calibrated() ||
		!out.Calibrated() {
		t.Errorf("calibrated: %t and %t, %v", plain.Calibrated(), out.Calibrated(), err)
	}
	if in := out.InitState.Inputs[1]; !in.Type.Equal(program.FloatType(1, weight.RowLen())) {
		t.Errorf("%s is %s", in.Name, in.Type)
	}
	if _, err := client.NewQuantizer(encode(t, quantizerAnswer(t, out))).
		Quantize(t.Context(), weight, program.Limits{Elements: 1e6}); err != nil {
		t.Error(err)
	}
}

// TestColumnsAnswersRefused checks mistakes of plugins in other languages.
func TestColumnsAnswersRefused(t *testing.T) {
	good, err := sdk.BuildQuantizer(smooth, weight)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*pb.QuantizerProgram)
		says   string
	}{
		"statistics in training": {func(m *pb.QuantizerProgram) { m.Next = m.InitState },
			"the next program must take x: float[2,8], trained.step: float, kept.by: float[1,8]"},
		"another order": {func(m *pb.QuantizerProgram) {
			in := m.InitState.Inputs
			in[1].Name, in[2].Name = in[2].Name, in[1].Name
		}, "may take activations.max: float[1,8], activations.mean: float[1,8], weights.max: " +
			"float[1,8], weights.mean: float[1,8] after them, in this order"},
		"another name": {func(m *pb.QuantizerProgram) { m.Init.Inputs[1].Name = "weights.least" },
			"the init program must take x: float[2,8], and may take"},
	} {
		answer := quantizerAnswer(t, good)
		c.change(answer.GetProgram())
		_, err := client.NewQuantizer(encode(t, answer)).
			Quantize(t.Context(), weight, program.Limits{Elements: 1e6})
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", name, err, c.says)
		}
	}
}
