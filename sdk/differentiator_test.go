package sdk_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/client"
	pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// differentiator is a trainable quantizer with a custom backward pass; its methods call functions.
type differentiator struct {
	quantizer
	backward func(b *program.Builder, x, dy program.Value, site sdk.Site) (sdk.Gradients, error)
}

func (differentiator) InitTrained(
	_ *program.Builder, x program.Value, _ sdk.Site,
) (sdk.State, error) {
	return sdk.State{"step": x.Abs().MaxAll()}, nil
}

func (d differentiator) Backward(
	b *program.Builder, x, dy program.Value, site sdk.Site,
) (sdk.Gradients, error) {
	return d.backward(b, x, dy, site)
}

// signed has the gradient |dy|·x, which is not linear in dy; the gradient of step uses noise.
var signed = differentiator{
	quantizer: func(_ *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
		return sdk.Quantized{Value: x.Div(site.Trained["step"]).Round().Mul(site.Trained["step"])}, nil
	},
	backward: func(b *program.Builder, x, dy program.Value, site sdk.Site) (sdk.Gradients, error) {
		noise := b.RandomBits(site.Noise).Convert(program.Float)
		return sdk.Gradients{X: dy.Abs().Mul(x), Trained: sdk.State{"step": dy.SumAll().Mul(noise)}}, nil
	},
}

func TestDifferentiator(t *testing.T) {
	out, err := sdk.BuildQuantizer(signed, weight)
	if err != nil {
		t.Fatal(err)
	}
	if in, o := inputNames(out.Backward), outputNames(
		out.Backward); in != "x trained.step d.value noise" || o != "d.x d.trained.step" {
		t.Errorf("backward takes %s and returns %s", in, o)
	}
	if !out.HasInput(spec.InputNoise) || out.HasInput(spec.InputStep) {
		t.Error("the noise of the backward pass is not seen, or a step that nothing takes is")
	}
	if e := out.ForEvaluation(); e.Backward != nil || e.Program != out.Program {
		t.Errorf("for evaluation: %+v", e)
	}
	if p, err := out.Reverse(); err != nil || p != out.Backward {
		t.Errorf("the backward pass is %v, %v", p, err)
	}
	parts, err := out.Split()
	if err != nil {
		t.Fatal(err)
	}
	if got := outputNames(parts.Backward); got != "d.x d.trained.step" {
		t.Errorf("the backward part returns %s", got)
	}
	got, err := client.NewQuantizer(encode(t, quantizerAnswer(t, out))).
		Quantize(t.Context(), weight, program.Limits{Elements: 1e6})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(summary(out.Programs(), len(out.Trained)),
		summary(got.Programs(), len(got.Trained))); diff != "" {
		t.Errorf("the answer changed (-sent +received):\n%s", diff)
	}
}

// TestReverse checks the signature of the backward pass of a surrogate.
func TestReverse(t *testing.T) {
	out, err := sdk.BuildQuantizer(steps, weight)
	if err != nil {
		t.Fatal(err)
	}
	p, err := out.Reverse()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, name := range out.Differentiable() {
		names = append(names, "d."+name)
	}
	if in, o := inputNames(p), outputNames(p); !strings.HasSuffix(in, " d.value") ||
		o != strings.Join(names, " ") {
		t.Errorf("the backward pass takes %s and returns %s", in, o)
	}
}

func TestDifferentiatorMistakes(t *testing.T) {
	for name, c := range map[string]struct {
		gradients func(b *program.Builder, x, dy program.Value) sdk.Gradients
		says      string
	}{
		"no gradient": {func(_ *program.Builder, _, dy program.Value) sdk.Gradients {
			return sdk.Gradients{Trained: sdk.State{"step": dy.SumAll()}}
		}, "d.x"},
		"none of the step": {func(_ *program.Builder, _, dy program.Value) sdk.Gradients {
			return sdk.Gradients{X: dy}
		}, "Gradients.Trained lacks step, which InitTrained returns"},
		"another shape": {func(_ *program.Builder, _, dy program.Value) sdk.Gradients {
			return sdk.Gradients{X: dy, Trained: sdk.State{"step": dy}}
		}, "Gradients.Trained has step with the shape [2 8], but InitTrained returns it with the shape " +
			"[]"},
		"one too many": {func(_ *program.Builder, _, dy program.Value) sdk.Gradients {
			return sdk.Gradients{X: dy, Trained: sdk.State{"step": dy.SumAll(), "more": dy}}
		}, "Gradients.Trained has more, which InitTrained does not return"},
		"another shape of x": {func(_ *program.Builder, _, dy program.Value) sdk.Gradients {
			return sdk.Gradients{X: dy.SumAll(), Trained: sdk.State{"step": dy.SumAll()}}
		}, "backward: output d.x is float, want float[2,8]"},
		"a factorization": {func(_ *program.Builder, x, dy program.Value) sdk.Gradients {
			return sdk.Gradients{X: x.MatMul(dy.Transpose(1, 0)).EighVectors().MatMul(dy),
				Trained: sdk.State{"step": dy.SumAll()}}
		}, "factorizations are for refresh programs only"},
	} {
		q := signed
		q.backward = func(b *program.Builder, x, dy program.Value, _ sdk.Site) (sdk.Gradients, error) {
			return c.gradients(b, x, dy), nil
		}
		if _, err := sdk.BuildQuantizer(q, weight); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", name, err, c.says)
		}
	}
	both := signed
	both.quantizer = func(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
		out, err := signed.quantizer(b, x, site)
		out.Surrogate = x.Clip(-1, 1)
		return out, err
	}
	if _, err := sdk.BuildQuantizer(both, weight); err == nil ||
		!strings.Contains(err.Error(), "got both a surrogate and a backward program") {
		t.Errorf("with a surrogate: %v", err)
	}
	none := signed
	none.backward = func(*program.Builder, program.Value, program.Value, sdk.Site) (sdk.Gradients,
		error) {
		return sdk.Gradients{}, nil
	}
	none.quantizer = func(_ *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
		return sdk.Quantized{Value: x.Round(), Surrogate: x.Mul(site.Trained["step"])}, nil
	}
	if out, err := sdk.BuildQuantizer(none, weight); err != nil || out.Backward != nil {
		t.Errorf("no gradients: %v, %v", out.Backward, err)
	}
	refuses := signed
	refuses.backward = func(*program.Builder, program.Value, program.Value, sdk.Site) (sdk.Gradients,
		error) {
		return sdk.Gradients{}, sdk.Refuse("not today")
	}
	if _, err := sdk.BuildQuantizer(refuses, weight); err == nil ||
		!strings.Contains(err.Error(), "not today") {
		t.Errorf("a refusal: %v", err)
	}
}

// TestDifferentiatorAnswersRefused checks mistakes of plugins in other languages.
func TestDifferentiatorAnswersRefused(t *testing.T) {
	good, err := sdk.BuildQuantizer(signed, weight)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*pb.QuantizerProgram)
		says   string
	}{
		"no gradients at all": {func(m *pb.QuantizerProgram) { m.Backward = nil },
			"trained.step gets no gradient from the surrogate"},
		"init for backward": {func(m *pb.QuantizerProgram) { m.Backward = m.Init },
			"the backward program must take x: float[2,8], trained.step: float, d.value: float[2,8]"},
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
