package sdk_test

import (
	"strings"
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/client"
	pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// collector is an optimizer that collects scalars.
type collector struct {
	pacer
	collect func(in sdk.UpdateInput) sdk.State
}

func (c collector) Collect(
	_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (sdk.State, error) {
	return c.collect(in), nil
}

// sums collects two scalars: the rate program reads one, the update program the other.
var sums = collector{
	pacer{
		optimizer{momentum.init, func(_ *program.Builder, in sdk.UpdateInput) (program.Value, sdk.State,
			error) {
			return in.Gradient.Mul(in.Global["norm2"]), in.State, nil
		}},
		func(_ *program.Builder, in sdk.UpdateInput) program.Value {
			return in.Rate.Mul(in.Global["along"])
		},
	},
	func(in sdk.UpdateInput) sdk.State {
		return sdk.State{"norm2": in.Gradient.Square().SumAll(), "along": in.Gradient.Mul(in.X).SumAll().
			Mul(in.Loss)}
	},
}

func TestCollector(t *testing.T) {
	out := overWire(t, sums)
	for _, c := range []struct {
		p    *program.Program
		want string
	}{
		{out.Collect, "x gradient step state.m state.v loss → global.along global.norm2"},
		{out.Update, "x gradient step state.m state.v global.norm2 → direction state.m state.v"},
		{out.Rate, "x gradient step state.m state.v rate global.along → own_rate"},
	} {
		if got := inputNames(c.p) + " → " + outputNames(c.p); got != c.want {
			t.Errorf("%s: %s, want %s", c.p.Name, got, c.want)
		}
	}
	if !out.HasInput(spec.InputLoss) || !out.HasInput("global.along") || out.HasInput("global.x") {
		t.Error("what the programs read is not reported")
	}
	nothing := sums
	nothing.optimizer, nothing.rate = momentum,
		func(_ *program.Builder, in sdk.UpdateInput) program.Value { return in.Rate }
	nothing.collect = func(sdk.UpdateInput) sdk.State { return nil }
	if out := overWire(t, nothing); out.Collect != nil {
		t.Error("there is a program that collects nothing")
	}
}

func TestCollectorRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		collect func(in sdk.UpdateInput) sdk.State
		says    string
	}{
		"a tensor": {
			func(in sdk.UpdateInput) sdk.State {
				return sdk.State{"norm2": in.X, "along": in.Step}
			}, "collect: output global.norm2 is float[2,8], want float"},
		"a sum of sums": {
			func(in sdk.UpdateInput) sdk.State {
				return sdk.State{"norm2": in.Global["norm2"].Scale(2)}
			}, "absent value"},
		"another name than is read": {
			func(in sdk.UpdateInput) sdk.State {
				return sdk.State{"norm2": in.Step}
			}, "operand 1 is absent"},
	} {
		o := sums
		o.collect = c.collect
		_, err := sdk.BuildOptimizer(o, matrix)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// TestCollectAnswers checks that the client refuses inconsistent answers.
func TestCollectAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*pb.OptimizerProgram)
		says   string
	}{
		"sums of nothing": {func(m *pb.OptimizerProgram) { m.Collect = nil },
			"the update program must take"},
		"a name without a prefix": {func(m *pb.OptimizerProgram) { m.Collect.Outputs[1].Name = "norm2" },
			"it must return scalars named global.NAME"},
		"no order": {
			func(m *pb.OptimizerProgram) {
				m.Collect.Outputs[0].Name = "global.z"
			}, "in the order of their names"},
		"a state that is no sum": {
			func(m *pb.OptimizerProgram) {
				m.Collect.Inputs[3].Name = "global.along"
			}, "the collect program must take"},
	} {
		m := optimizerAnswer(t, build(t, sums))
		c.change(m.GetProgram())
		if _, err := client.NewOptimizer(encode(t, m)).
			Program(t.Context(), matrix, program.Limits{}); err == nil ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}
