package sdk_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/internal/wire"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
	"github.com/cage-qat/cage/sdk/spec"
)

// drawn uses all per-step inputs in training.
var drawn = quantizer(func(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized,
	error) {
	if !site.Training {
		return sdk.Quantized{Value: x.Round()}, nil
	}
	u := b.RandomBits(site.Noise, site.Shape...).Xor(b.RandomBits(site.SharedNoise, site.Shape...)).
		Convert(program.Float)
	return sdk.Quantized{Value: x.Add(u.Mul(site.Step.Div(site.Steps))).Floor()}, nil
})

func TestNoise(t *testing.T) {
	out, err := sdk.BuildQuantizer(drawn, weight)
	if err != nil {
		t.Fatal(err)
	}
	if got := inputNames(out.Program); got != "x noise shared_noise step steps" {
		t.Errorf("the program takes %s", got)
	}
	if got := inputNames(out.Evaluate); got != "x" {
		t.Errorf("the program of evaluation takes %s", got)
	}
	e := out.ForEvaluation()
	if e.Program != out.Evaluate || e.Evaluate != nil || e.Check(weight.Shape) != nil ||
		e.HasInput(spec.InputNoise) || !out.HasInput(spec.InputNoise) {
		t.Errorf("for evaluation: %+v", e)
	}
	if again := e.ForEvaluation(); again.Program != e.Program {
		t.Error("what is for evaluation changes when it is asked for evaluation")
	}
}

// TestNoNoise checks that a program without per-step inputs equals, byte for byte, one that was
// built without them, and that there is no second program for evaluation.
func TestNoNoise(t *testing.T) {
	write := func(b *program.Builder, x program.Value) program.Value {
		return x.Abs().MaxRow().Div(b.Const(7)).Mul(x).Round()
	}
	b := program.NewBuilder("q/" + weight.Name)
	x := b.Input("x", program.FloatType(weight.Shape...))
	b.Output("value", write(b, x))
	b.Output("surrogate", x)
	before, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	for name, unused := range map[string]func(*program.Builder, sdk.Site){
		"without": func(*program.Builder, sdk.Site) {},
		"drawn for nothing": func(b *program.Builder, site sdk.Site) {
			if site.Training {
				b.RandomBits(site.Noise, 3).Convert(program.Float).Mul(site.Step)
			}
		},
	} {
		out, err := sdk.BuildQuantizer(
			quantizer(func(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
				unused(b, site)
				return sdk.Quantized{Value: write(b, x)}, nil
			}), weight)
		if err != nil {
			t.Fatal(err)
		}
		if now := out.Program; now.Hash() != before.Hash() ||
			string(wireBytes(t, now)) != string(wireBytes(t, before)) {
			t.Errorf("%s: the program was\n%s\nand is\n%s", name, before, now)
		}
		if out.Evaluate != nil {
			t.Errorf("%s: there is a program of evaluation", name)
		}
	}
}

func wireBytes(t *testing.T, p *program.Program) []byte {
	t.Helper()
	return []byte(encode(t, wire.ToProgram(p)))
}

func TestNoiseMistakes(t *testing.T) {
	for name, c := range map[string]struct {
		q    quantizer
		says string
	}{
		"noise in evaluation": {func(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized,
			error) {
			return sdk.Quantized{Value: x.Add(b.RandomBits(site.Noise, site.Shape...).
				Convert(program.Float))}, nil
		}, "for evaluation, without Noise, SharedNoise, Step and Steps:"},
		"the step in evaluation": {func(_ *program.Builder, x program.Value, site sdk.Site) (
			sdk.Quantized, error) {
			return sdk.Quantized{Value: x.Mul(site.Step)}, nil
		}, "absent"},
		"a mistake in evaluation": {func(_ *program.Builder, x program.Value, site sdk.Site) (
			sdk.Quantized, error) {
			if site.Training {
				return sdk.Quantized{Value: x}, nil
			}
			return sdk.Quantized{Value: x.MaxRow()}, nil
		}, "for evaluation, without Noise, SharedNoise, Step and Steps: output value is float[2,1]"},
	} {
		_, err := sdk.BuildQuantizer(c.q, weight)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", name, err, c.says)
		}
	}
	_, err := sdk.BuildQuantizer(
		quantizer(func(_ *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
			if !site.Training {
				return sdk.Quantized{}, sdk.Refuse("it trains only")
			}
			return sdk.Quantized{Value: x}, nil
		}), weight)
	if _, ok := errors.AsType[*sdk.Refusal](err); !ok {
		t.Errorf("a refusal in evaluation becomes %v", err)
	}
}

// TestNoiseSignatures checks mistakes of plugins in other languages.
func TestNoiseSignatures(t *testing.T) {
	good, err := sdk.BuildQuantizer(drawn, weight)
	if err != nil {
		t.Fatal(err)
	}
	packed, err := sdk.BuildQuantizer(steps, weight)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		of     spec.Quantizer
		change func(*spec.Quantizer)
		says   string
	}{
		"no evaluation": {good, func(q *spec.Quantizer) { q.Evaluate = nil },
			"there is no program for evaluation"},
		"noise for evaluation": {good, func(q *spec.Quantizer) { q.Evaluate = q.Program },
			"the evaluate program must take x: float[2,8]"},
		"another type in codes": {packed,
			func(q *spec.Quantizer) {
				q.Evaluate = withoutCodes(t, q.Program)
			}, "for evaluation: a quantizer that can unpack needs the output codes"},
		"trained for evaluation": {packed, func(q *spec.Quantizer) { q.Evaluate = good.Evaluate },
			"the evaluate program must take x: float[2,8], trained.offset: float"},
	} {
		q := c.of
		c.change(&q)
		if err := q.Check(weight.Shape); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", name, err, c.says)
		}
	}
}

func withoutCodes(t *testing.T, p *program.Program) *program.Program {
	t.Helper()
	p, err := transform.Trim(p, spec.OutputValue, spec.OutputSurrogate, spec.OutputScale)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
