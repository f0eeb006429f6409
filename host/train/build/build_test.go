package build_test

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/testing/pjrtrecord"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/spec"
)

func modelOf(t *testing.T, cfg *config.Config) model.Model {
	t.Helper()
	m, err := build.Model(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func collect(
	t *testing.T, cfg *config.Config, f *plugin.Finder, forward bool,
) (*build.Programs, error) {
	t.Helper()
	return build.Collect(context.Background(),
		build.Request{Config: cfg, Model: modelOf(t, cfg), Batch: cfg.Train.Batch, Finder: f,
			Forward: forward})
}

// TestCollect checks that Collect starts one process per plugin, returns a program for every tensor
// and site, and leaves no process running.
func TestCollect(t *testing.T) {
	cases := map[string]struct {
		overrides            []string
		forward              bool
		processes            int
		weights, activations bool
	}{
		"both roles": {nil, false, 2, true, true},
		"two settings": {[]string{`quantizer.weights={plugin="quest", bits=4}`,
			`quantizer.activations={plugin="quest", bits=8}`}, false, 2, true, true},
		"two plugins":         {[]string{`quantizer.weights={plugin="absmax"}`}, false, 3, true, true},
		"weights only":        {[]string{`quantizer.activations={plugin="none"}`}, false, 2, true, false},
		"unquantized":         {[]string{`quantizer.plugin="none"`}, false, 1, false, false},
		"forward":             {nil, true, 1, true, true},
		"forward unquantized": {[]string{`quantizer.plugin="none"`}, true, 0, false, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := testrun.Config(t, append(c.overrides, "model.vocab=40")...)
			recorder := testrun.NewRecorder(t)
			p, err := collect(t, cfg, recorder.Finder, c.forward)
			if err != nil {
				t.Fatal(err)
			}
			started := recorder.Processes(t)
			if left := testrun.Alive(started); len(started) != c.processes || len(left) > 0 {
				t.Errorf("%d processes started, want %d; %d still run", len(started), c.processes, len(left))
			}
			m := modelOf(t, cfg)
			check := func(what string, got int, there bool, want int) {
				if !there {
					want = 0
				}
				if got != want {
					t.Errorf("%d programs for %s, want %d", got, what, want)
				}
			}
			quantized := architecture.CountParams(m.Params(),
				func(p architecture.Param) bool { return p.Quantized })
			covered := 0
			for _, param := range m.Params() {
				if _, ok := p.Weights[param.Name]; ok {
					covered += param.Size()
				}
			}
			check("weights (elements)", covered, c.weights, quantized)
			check("activations", len(p.Activations), c.activations, len(m.ActivationSites(4, 16)))
			optimized := 0
			for _, tensor := range p.Tensors {
				if tensor.Optimizer.Update != nil {
					optimized++
				}
			}
			check("the optimizer", optimized, !c.forward, len(m.Params()))
		})
	}
}

// TestUsed checks that the plugins are recorded, with default parameters and pinned hashes.
func TestUsed(t *testing.T) {
	cfg := testrun.Config(t, "model.vocab=40", "quantizer.bits=3")
	p, err := collect(t, cfg, testrun.Finder(t), false)
	if err != nil {
		t.Fatal(err)
	}
	var tables []string
	for _, u := range p.Used {
		tables = append(tables, u.Table+" "+u.Name)
		if len(u.SHA256) != 64 {
			t.Errorf("%s has the hash %q", u.Table, u.SHA256)
		}
	}
	if diff := cmp.Diff([]string{"quantizer quest", "quantizer quest", "optimizer adamw"},
		tables); diff != "" {
		t.Error(diff)
	}
	if v := p.Used[0].Values; v["bits"] != 3 || v["form"] != "paper" {
		t.Errorf("the parameters of quest are %v", v)
	}
	pinned := p.Pinned(cfg)
	if pinned.Optimizer.SHA256 != p.Used[2].SHA256 ||
		pinned.Quantizer.Weights.SHA256 != p.Used[0].SHA256 || cfg.Optimizer.SHA256 != "" {
		t.Error("the hashes are not those of the pinned configuration, and of it alone")
	}
}

// TestMistakes checks that mistakes which only plugins can find are reported at the key of the
// configuration.
func TestMistakes(t *testing.T) {
	pin := strings.Repeat("0", 64)
	cases := []struct {
		name, key string
		overrides []string
		kind      error
		words     []string
	}{
		{"an unknown parameter", "quantizer.bit", []string{"quantizer.bit=4"}, nil,
			[]string{"no such parameter", "did you mean bits?"}},
		{"a value out of range", "quantizer.bits", []string{"quantizer.bits=99"}, nil, []string{"99"}},
		{"a value of another type", "optimizer.beta1", []string{`optimizer.beta1="high"`}, nil,
			[]string{"high"}},
		{"an unknown plugin", "quantizer.plugin", []string{`quantizer.plugin="qest"`}, plugin.ErrNotFound,
			[]string{"did you mean"}},
		{"another kind of plugin", "optimizer.plugin", []string{`optimizer.plugin="quest"`},
			plugin.ErrKind, nil},
		{"another hash", "optimizer.sha256", []string{`optimizer.sha256="` + pin + `"`},
			plugin.ErrChecksum, []string{pin}},
		{"tokens that a block does not divide", "quantizer.gradients.plugin",
			[]string{`quantizer.gradients={plugin="mxfp4", rotation="128"}`, "model.width=128"},
			plugin.ErrRefused,
			[]string{"layers.0.attn.qkv", "sums over the 64 tokens of a micro-batch"}},
		{"trained parameters in the backward pass", "quantizer.backward.plugin",
			[]string{`quantizer.backward={plugin="lsq"}`}, nil,
			[]string{"backward of layers.0.attn.qkv: the quantizer has the trained parameter"}},
		{"a refused site", "quantizer.plugin", []string{"quantizer.bits=1"}, plugin.ErrRefused,
			[]string{"bits = 1"}},
	}
	finder := testrun.Finder(t)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cfg := testrun.Config(t, append(c.overrides, "model.vocab=40")...)
			_, err := collect(t, cfg, finder, false)
			var ce *plaintoml.Error
			var list plaintoml.Errors
			if errors.As(err, &list) && len(list) > 0 {
				ce = list[0]
			} else {
				errors.As(err, &ce)
			}
			if ce == nil || ce.Key != c.key || c.kind != nil && !errors.Is(err, c.kind) {
				t.Fatalf("got %v, want an error of the key %s", err, c.key)
			}
			for _, w := range c.words {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("the error does not say %q: %v", w, err)
				}
			}
		})
	}
}

// TestKilledAfterHandover checks that a run needs nothing of a plugin but its programs. It kills
// the plugins after the last program has arrived. The steps must equal those of an undisturbed run
// bit for bit.
func TestKilledAfterHandover(t *testing.T) {
	testlevel.Long(t, "trains twice")
	cfg := testrun.Config(t, "model.vocab=40", "method.silence=0.0")
	want := trainFive(t, cfg, testrun.Plan(t, testrun.Again(t, cfg)))
	m := modelOf(t, cfg)
	start := func(name string, kind sdk.Kind) *plugin.Client {
		c, err := testrun.Finder(t).Start(t.Context(), name, kind, plugin.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	quantizer, optimizer := start("quest", sdk.KindQuantizer), start("adamw", sdk.KindOptimizer)
	programs := handOver(t, cfg, m, quantizer, optimizer)
	for _, c := range []*plugin.Client{quantizer, optimizer} {
		if err := syscall.Kill(c.PID(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		select {
		case <-c.Done():
		case <-time.After(10 * time.Second):
			t.Fatal("the plugin does not end")
		}
	}
	plan, err := build.Plan(cfg, m, programs)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, trainFive(t, cfg, plan)); diff != "" {
		t.Errorf("a run whose plugins were killed differs:\n%s", diff)
	}
}

// handOver gets all programs of a model from two plugins.
func handOver(
	t *testing.T, cfg *config.Config, m model.Model, quantizer, optimizer *plugin.Client,
) *build.Programs {
	t.Helper()
	p := &build.Programs{Weights: map[string]spec.Quantizer{},
		Activations: map[string]spec.Quantizer{}}
	values, err := quantizer.Resolve(map[string]any{"bits": int64(4)})
	if err != nil {
		t.Fatal(err)
	}
	defaults, err := optimizer.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	quantize := func(role sdk.Role, name string, shape ...int) spec.Quantizer {
		q, err := quantizer.Quantize(t.Context(),
			sdk.Site{Role: role, Name: name, Shape: shape, Values: values})
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	for _, param := range m.Params() {
		if param.Quantized {
			p.Weights[param.Name] = quantize(sdk.RoleWeight, param.Name, param.Dims...)
		}
	}
	for _, s := range m.ActivationSites(cfg.Train.Batch, cfg.Model.Context) {
		p.Activations[s.Name] = quantize(sdk.RoleActivation, s.Name, s.Tokens, s.Width)
	}
	p.Tensors = build.Tensors(cfg, m, p)
	for i := range p.Tensors {
		tensor := &p.Tensors[i]
		tensor.Optimizer, err = optimizer.Program(t.Context(),
			sdk.Tensor{Name: tensor.Name, Role: tensor.Role, Shape: tensor.Shape, Values: defaults})
		if err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// trainFive returns all tensors after five steps.
func trainFive(t *testing.T, cfg *config.Config, plan step.Plan) map[string][]float32 {
	t.Helper()
	c := testrun.Compile(t, plan)
	s, err := c.NewState(t.Context(), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range 5 {
		b := [][]int32{testrun.Tokens(uint64(i), cfg.Train.Batch, cfg.Model.Context+1, 40)}
		if _, err := c.Step(s, b, step.Settings{Step: i + 1, Rate: 3e-3, NextRate: 3e-3,
			Lambda: float64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	return testrun.Download(t, c, s)
}

// TestPlan checks that only the matrices of linear layers have weight decay, and that only
// quantized weights have a correction.
func TestPlan(t *testing.T) {
	plan := testrun.Plan(t, testrun.Config(t, "model.vocab=40"))
	for i, p := range plan.Model.Params() {
		r := plan.Rules[i]
		matrix := p.Role == architecture.RoleMatrix
		if r.Name != p.Name || r.Decay > 0 != matrix || (r.Quantizer != nil) != matrix || !r.Clip {
			t.Errorf("the rule of %s (%s) has decay %v, clip %t, quantizer %t", p.Name, p.Role, r.Decay,
				r.Clip, r.Quantizer != nil)
		}
	}
	plain := testrun.Plan(t, testrun.Config(t, "model.vocab=40", "train.weight_decay=0.0",
		"train.clip=0.0"))
	for _, r := range plain.Rules {
		if r.Decay != 0 || r.Clip {
			t.Errorf("%s: decay %v, clip %t, want neither", r.Name, r.Decay, r.Clip)
		}
	}
}

// TestTrainedQuantizersNeedTheirGradient checks that method.gradient = "full" is refused for a
// quantizer with trained parameters, which a gradient at x does not train.
func TestTrainedQuantizersNeedTheirGradient(t *testing.T) {
	cfg := testrun.Config(t, `quantizer={plugin="lsq"}`, `method.gradient="full"`, "model.vocab=40")
	programs, err := collect(t, cfg, testrun.Finder(t), false)
	if err != nil {
		t.Fatal(err)
	}
	var ce *plaintoml.Error
	if _, err := build.Plan(cfg, modelOf(t, cfg), programs); !errors.As(err, &ce) ||
		ce.Key != "method.gradient" ||
		!strings.Contains(ce.Error(), "layers.0.attn.out has trained parameters") {
		t.Errorf("got %v, want an error of method.gradient", err)
	}
}

// TestBackward checks that the operands of the backward products get programs in a training, with
// overrides by role, and none in an evaluation.
func TestBackward(t *testing.T) {
	cfg := testrun.Config(t, "model.vocab=40", `quantizer.gradients={plugin="mxfp4"}`,
		`quantizer.overrides=[{match="*.mlp.w1", role="gradients", plugin="none"}, {match="*.attn.out*", role="backward", plugin="absmax"}]`)
	finder := testrun.Finder(t)
	p, err := collect(t, cfg, finder, false)
	if err != nil {
		t.Fatal(err)
	}
	// Two gradients for each of four weights (not w1), and both other operands of attn.out.
	if len(p.Backward) != 2*4+2 {
		t.Errorf("%d operands are quantized: %v", len(p.Backward), p.Backward)
	}
	for site, q := range p.Backward {
		other := site.Role != sdk.RoleGradient
		if site.Name == "layers.0.mlp.w1" || other != strings.Contains(site.Name, "attn.out") && other {
			t.Errorf("%s is quantized", site)
		}
		if p.Hashes()[site.String()+": quantize"] != q.Program.Hash() {
			t.Errorf("the hash of %s is not recorded", site)
		}
	}
	if plan, err := build.Plan(cfg, modelOf(t, cfg), p); err != nil ||
		len(plan.Backward) != len(p.Backward) {
		t.Errorf("the plan has %d operands: %v", len(plan.Backward), err)
	}
	if p, err = collect(t, cfg, finder, true); err != nil || len(p.Backward) > 0 || len(p.Used) != 2 {
		t.Errorf("an evaluation has %d operands and %d plugins, want 0 and 2: %v", len(p.Backward),
			len(p.Used), err)
	}
	for key, override := range map[string]string{"method.gradient": `method.gradient="full"`,
		"method.name": `method={name="lotion"}`} {
		cfg := testrun.Config(t, "model.vocab=40",
			`quantizer={weights={plugin="absmax"}, gradients={plugin="mxfp4"}}`, override)
		p, err := collect(t, cfg, finder, false)
		if err != nil {
			t.Fatal(err)
		}
		var ce *plaintoml.Error
		if _, err := build.Plan(cfg, modelOf(t, cfg), p); !errors.As(err, &ce) || ce.Key != key ||
			ce.Hint != "leave [quantizer.gradients] out" {
			t.Errorf("got %v, want an error of %s", err, key)
		}
	}
}

// TestMain fails if a goroutine outlives the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDeviceCount(t *testing.T) {
	plugin, _ := pjrtrecord.Plugin(t, 2)
	t.Setenv(engine.PluginPathVariable, plugin)
	const text = `[model]
layers = 2
width = 64
heads = 2
context = 32
[data]
train = "a.tok"
validation = "b.tok"
[train]
steps = 10
batch = 12
[schedule]
rate = 1e-3
[device]
kind = "cuda"
`
	for count, want := range map[string]string{"1": "", "2": "",
		"3": `run.toml:16: device.count: device "cuda": 3 replicas were requested, but it has 2 GPU(s)`} {
		cfg, err := config.Parse("run.toml", []byte(text+"count = "+count+"\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		d, err := build.Device(cfg, nil)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s GPUs: %v", count, err)
		case want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)):
			t.Errorf("%s GPUs: got error %v, want %q", count, err, want)
		}
		if d != nil && d.Close() != nil {
			t.Error("the device does not close")
		}
	}
}
