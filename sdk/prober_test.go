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

// prober is an optimizer that uses a second gradient.
type prober struct {
	collector
	probe func(b *program.Builder, in sdk.UpdateInput) program.Value
	due   sdk.Due
}

func (p prober) Probe(b *program.Builder, in sdk.UpdateInput, _ sdk.Tensor) (program.Value, error) {
	return p.probe(b, in), nil
}

func (p prober) ProbeAt(sdk.Tensor) sdk.Due { return p.due }

// probes returns a prober that uses noise, a collected sum, and both probe inputs.
func probes() prober {
	p := prober{collector: sums, due: sdk.Due{First: 1, Next: 1, Every: 10}}
	p.update = func(_ *program.Builder, in sdk.UpdateInput) (program.Value, sdk.State, error) {
		return in.Gradient.Add(in.Probed.Mul(in.Probing)), in.State, nil
	}
	p.probe = func(b *program.Builder, in sdk.UpdateInput) program.Value {
		return b.RandomBits(in.Noise, 2, 8).Convert(program.Float).Mul(in.Global["norm2"])
	}
	return p
}

func TestProber(t *testing.T) {
	out := overWire(t, probes())
	for _, c := range []struct {
		p    *program.Program
		want string
	}{
		{out.Probe, "x gradient step state.m state.v noise global.norm2 → offset"},
		{out.Update, "x gradient step state.m state.v probed probing → direction state.m state.v"},
	} {
		if got := inputNames(c.p) + " → " + outputNames(c.p); got != c.want {
			t.Errorf("%s: %s, want %s", c.p.Name, got, c.want)
		}
	}
	if out.ProbeDue != (sdk.Due{First: 1, Next: 1, Every: 10}) || !out.HasInput(spec.InputNoise) ||
		!out.HasInput("global.norm2") {
		t.Error("what the programs read, or when they are due, is not reported")
	}
	never := probes()
	never.due, never.update = sdk.Due{}, sums.update
	never.probe = func(*program.Builder, sdk.UpdateInput) program.Value { panic("asked for") }
	if out := overWire(t, never); out.Probe != nil {
		t.Error("there is a probe that is never due")
	}
}

func TestProberRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*prober)
		says   string
	}{
		"a scalar": {func(p *prober) {
			p.probe = func(_ *program.Builder, in sdk.UpdateInput) program.Value { return in.Step }
		}, "probe: output offset is float, want float[2,8]"},
		"a probe of the probed": {func(p *prober) {
			p.probe = func(_ *program.Builder, in sdk.UpdateInput) program.Value { return in.Probed }
		}, "absent"},
		"an impossible schedule": {func(p *prober) { p.due = sdk.Due{Every: 2} }, "ProbeAt: "},
		"probed without a probe": {func(p *prober) { p.due = sdk.Due{} }, "absent"},
		"collects what is probed": {func(p *prober) {
			p.collect = func(in sdk.UpdateInput) sdk.State { return sdk.State{"norm2": in.Probing} }
		}, "absent"},
	} {
		o := probes()
		c.change(&o)
		if _, err := sdk.BuildOptimizer(o, matrix); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// TestProbeAnswers checks that the client refuses inconsistent answers.
func TestProbeAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*pb.OptimizerProgram)
		says   string
	}{
		"no schedule": {func(m *pb.OptimizerProgram) { m.ProbeDue = nil },
			"the update program must take"},
		"no program": {func(m *pb.OptimizerProgram) { m.Probe = nil },
			"the probe program is required exactly when one is due and labels are not drawn"},
		"a schedule too long": {func(m *pb.OptimizerProgram) { m.ProbeDue.Every = 1 << 31 }, "probe"},
		"another output": {func(m *pb.OptimizerProgram) { m.Probe.Outputs[0].Name = "point" },
			"the probe program must return offset"},
	} {
		m := optimizerAnswer(t, build(t, probes()))
		c.change(m.GetProgram())
		if _, err := client.NewOptimizer(encode(t, m)).
			Program(t.Context(), matrix, program.Limits{}); err == nil ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// sampler is an optimizer that uses a gradient with sampled labels, and may also probe.
type sampler struct {
	prober
	sampled sdk.Due
}

func (s sampler) SampleAt(sdk.Tensor) sdk.Due { return s.sampled }

func TestSampler(t *testing.T) {
	s := sampler{prober: probes(), sampled: sdk.Due{First: 1, Next: 1, Every: 10}}
	s.due = sdk.Due{}
	s.probe = func(*program.Builder, sdk.UpdateInput) program.Value { panic("asked for") }
	out := overWire(t, s)
	if out.Probe != nil || !out.Sampled || out.ProbeDue != s.sampled {
		t.Errorf("a sampler has a probe: %v, sampled: %v, due at %+v", out.Probe, out.Sampled,
			out.ProbeDue)
	}
	if got := inputNames(out.Update); got != "x gradient step state.m state.v probed probing" {
		t.Errorf("the update takes %s", got)
	}
	s = sampler{prober: probes()}
	if out := overWire(t, s); out.Probe == nil || out.Sampled {
		t.Error("a sampler that never samples is no prober")
	}
}

func TestSamplerRefuses(t *testing.T) {
	both := sampler{prober: probes(), sampled: sdk.Due{First: 1}}
	bad := sampler{prober: probes(), sampled: sdk.Due{Every: 1}}
	for says, o := range map[string]sdk.Optimizer{"let ProbeAt or SampleAt return Due{}": both,
		"SampleAt: ": bad} {
		if _, err := sdk.BuildOptimizer(o, matrix); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	m := optimizerAnswer(t, build(t, probes()))
	m.GetProgram().Sampled = true
	if _, err := client.NewOptimizer(encode(t, m)).
		Program(t.Context(), matrix, program.Limits{}); err == nil ||
		!strings.Contains(err.Error(), "labels are not drawn") {
		t.Errorf("a probe of drawn labels: %v", err)
	}
	m = optimizerAnswer(t, build(t, sums))
	m.GetProgram().Sampled = true
	if _, err := client.NewOptimizer(encode(t, m)).
		Program(t.Context(), matrix, program.Limits{}); err == nil ||
		!strings.Contains(err.Error(), "no sample is ever due") {
		t.Errorf("labels that are never drawn: %v", err)
	}
}
