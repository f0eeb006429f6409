package sdk_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/client"
	pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// stateful is a quantizer with state; its methods call functions.
type stateful struct {
	quantizer
	init func(b *program.Builder, x program.Value) sdk.State
}

func (s stateful) InitState(b *program.Builder, x program.Value, _ sdk.Site) (sdk.State, error) {
	return s.init(b, x), nil
}

// Maximum reports whether s is a maximum.
func (stateful) Maximum(s string, _ sdk.Site) bool { return s == "scale" }

// averages rounds with a scale and a mean that are moving averages; the next scale includes noise.
var averages = stateful{
	quantizer: func(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
		s, m := site.State["scale"], site.State["mean"]
		out := sdk.Quantized{Value: x.Sub(m).Div(s).Round().Mul(s).Add(m)}
		if site.Training {
			noise := b.RandomBits(site.Noise).Convert(program.Float).Scale(0x1p-40)
			out.Next = sdk.State{"scale": s.Scale(0.9).Add(x.Abs().MaxAll().Scale(0.1)).Add(noise),
				"mean": m.Scale(0.9).Add(x.MeanAll().Scale(0.1))}
		}
		return out, nil
	},
	init: func(b *program.Builder, x program.Value) sdk.State {
		return sdk.State{"scale": x.Abs().MaxAll(), "mean": b.Const(0)}
	},
}

func TestStateful(t *testing.T) {
	out, err := sdk.BuildQuantizer(averages, weight)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]spec.Tensor{{Name: "mean"}, {Name: "scale", Maximum: true}}, out.State,
		cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	for _, c := range []struct {
		p              *program.Program
		takes, returns string
	}{
		{out.Program, "x kept.mean kept.scale", "value surrogate"},
		{out.Next, "x kept.mean kept.scale noise", "kept.mean kept.scale"},
		{out.InitState, "x", "kept.mean kept.scale"},
	} {
		if in, o := inputNames(c.p), outputNames(c.p); in != c.takes || o != c.returns {
			t.Errorf("%s takes %s and returns %s, want %s and %s", c.p.Name, in, o, c.takes, c.returns)
		}
	}
	if !out.HasInput(spec.InputNoise) || out.HasInput(spec.InputStep) {
		t.Error("the noise of the next state is not seen, or a step that nothing takes is")
	}
	if out.Evaluate != nil {
		t.Error("evaluation has a program of its own, though it quantizes alike")
	}
	if e := out.ForEvaluation(); e.Next != nil || e.Program != out.Program || e.InitState == nil {
		t.Errorf("for evaluation: %+v", e)
	}
	got, err := client.NewQuantizer(encode(t, quantizerAnswer(t, out))).
		Quantize(t.Context(), weight, program.Limits{Elements: 1e6})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(summary(out.Programs(), len(out.State)),
		summary(got.Programs(), len(got.State))); diff != "" {
		t.Errorf("the answer changed (-sent +received):\n%s", diff)
	}
	if diff := cmp.Diff(out.State, got.State, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the state changed (-sent +received):\n%s", diff)
	}
}

func TestStatefulMistakes(t *testing.T) {
	for name, c := range map[string]struct {
		next func(b *program.Builder, x program.Value) sdk.State
		says string
	}{
		"no next state": {func(*program.Builder, program.Value) sdk.State { return nil },
			"Next lacks scale, which InitState returns"},
		"an absent value": {
			func(*program.Builder, program.Value) sdk.State { return sdk.State{"scale": {}} }, "scale"},
		"another shape": {
			func(b *program.Builder, _ program.Value) sdk.State {
				return sdk.State{"scale": b.Zeros(3)}
			}, "Next has scale with the shape [3], but InitState returns it with the shape []"},
		"another type": {
			func(b *program.Builder, _ program.Value) sdk.State {
				return sdk.State{"scale": b.ConstInt(3)}
			}, "next: output kept.scale is int, want float"},
		"one too many": {func(b *program.Builder, _ program.Value) sdk.State {
			return sdk.State{"scale": b.Const(1), "more": b.Const(2)}
		}, "Next has more, which InitState does not return"},
	} {
		_, err := sdk.BuildQuantizer(stateful{
			quantizer: func(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
				return sdk.Quantized{Value: x.Div(site.State["scale"]).Round(), Next: c.next(b, x)}, nil
			},
			init: func(_ *program.Builder, x program.Value) sdk.State {
				return sdk.State{"scale": x.Abs().MaxAll()}
			},
		}, weight)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", name, err, c.says)
		}
	}
	homogeneous := averages
	homogeneous.quantizer = func(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized,
		error) {
		out, err := averages.quantizer(b, x, site)
		out.Homogeneous = true
		return out, err
	}
	if _, err := sdk.BuildQuantizer(homogeneous, weight); err == nil ||
		!strings.Contains(err.Error(), "cannot hold with the state mean") {
		t.Errorf("homogeneous: %v", err)
	}
	stateless := averages
	stateless.init = func(*program.Builder, program.Value) sdk.State { return nil }
	stateless.quantizer = func(_ *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized,
		error) {
		if len(site.State) > 0 {
			t.Error("there is state where InitState has returned none")
		}
		return sdk.Quantized{Value: x.Round(), Homogeneous: true}, nil
	}
	if out, err := sdk.BuildQuantizer(stateless, weight); err != nil || out.Next != nil ||
		out.InitState != nil || out.State != nil {
		t.Errorf("without state: %+v, %v", out, err)
	}
}

// TestStatefulAnswersRefused checks mistakes of plugins in other languages.
func TestStatefulAnswersRefused(t *testing.T) {
	good, err := sdk.BuildQuantizer(averages, weight)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*pb.QuantizerProgram)
		says   string
	}{
		"no init_state": {func(m *pb.QuantizerProgram) { m.InitState = nil },
			"the init_state program is required exactly when there is state"},
		"no next": {func(m *pb.QuantizerProgram) { m.Next = nil },
			"the next program is required exactly when there is state"},
		"no list": {func(m *pb.QuantizerProgram) { m.State = nil },
			"the quantizer's program must take x: float[2,8]"},
		"another order": {func(m *pb.QuantizerProgram) {
			m.State[0], m.State[1] = m.State[1], m.State[0]
		}, "state tensors are not sorted by name"},
		"init for next": {func(m *pb.QuantizerProgram) { m.Next = m.InitState },
			"the next program must take x: float[2,8], kept.mean: float, kept.scale: float"},
		"a large state": {func(m *pb.QuantizerProgram) { m.State[1].Shape = []uint32{1 << 30} },
			"state tensors: they have more than 1000000 elements in total"},
		"shared": {func(m *pb.QuantizerProgram) { m.State[0].Shared = "all" },
			"state tensor mean is shared or constrained"},
		"constrained": {func(m *pb.QuantizerProgram) { m.State[0].Constrain = m.InitState },
			"state tensor mean is shared or constrained"},
		"a promise": {func(m *pb.QuantizerProgram) { m.Homogeneous = true },
			"cannot hold with the state mean"},
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
