package conformance_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/conformance"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/internal/testing/randprog"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/sdktest"
)

// TestTorchPrograms checks that cage-torch computes random programs like the reference
// implementation, also with torch.compile. Integers and bools are equal; floats have the rounding
// errors of up to 40 operations (see TestRandomPrograms of package lower). Gradients, which are
// computed in float64, are those of package autodiff, but for the order of sums.
func TestTorchPrograms(t *testing.T) {
	m := startTorch(t)
	var ops []program.Op
	for _, info := range program.Ops() {
		if info.Class != program.ClassLinalg {
			ops = append(ops, info.Op)
		}
	}
	for seed := range uint64(300) {
		c := randprog.New(seed, randprog.Options{Ops: ops})
		want, err := reference.Run(c.Program, c.Inputs)
		if err != nil {
			t.Fatal(err)
		}
		m.compiled = seed%25 == 0
		got, err := m.Run(c.Program, c.Inputs)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, o := range c.Program.Outputs {
			if err := near(got[o.Name], want[o.Name], 2e-4); err != nil {
				t.Errorf("seed %d, output %s: %v\n%s", seed, o.Name, err, c.Program)
			}
		}
		o := c.Program.Outputs[len(c.Program.Outputs)/2]
		if want[o.Name].Type.DType != program.Float {
			continue
		}
		backward, err := autodiff.VJP(c.Program, o.Name, "x0", "x1")
		if err != nil {
			t.Fatal(err)
		}
		inputs := maps.Clone(c.Inputs)
		inputs["d."+o.Name] = want[o.Name]
		gradients, err := reference.Run(backward, inputs)
		if err != nil {
			t.Fatal(err)
		}
		found, err := m.gradients(c.Program, c.Inputs, o.Name, "x0", "x1")
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for name, g := range found {
			if err := near(g, gradients["d."+name], 1e-9); err != nil {
				t.Errorf("seed %d, gradient of %s by %s: %v", seed, o.Name, name, err)
			}
		}
	}
}

// near returns an error unless integers are equal and floats differ by at most tolerance times the
// largest element.
func near(got, want reference.Tensor, tolerance float64) error {
	largest := 1.0
	for _, v := range want.Floats {
		if v := math.Abs(v); v > largest && !math.IsInf(v, 0) {
			largest = v
		}
	}
	for i, v := range want.Floats {
		g := got.Floats[i]
		same := g == v || math.IsNaN(g) && math.IsNaN(v) || math.Abs(g-v) <= tolerance*largest
		if !same {
			return fmt.Errorf("element %d is %v, want %v", i, g, v)
		}
	}
	for i, v := range want.Ints {
		if g := got.Ints[i]; g != v {
			return fmt.Errorf("element %d is %d, want %d", i, g, v)
		}
	}
	return nil
}

// TestTorchPlugins runs the conformance kit, whose inputs have NaN, ties, subnormal numbers and
// zeros, with PyTorch as a device on all plugins and examples in Go.
func TestTorchPlugins(t *testing.T) {
	m := startTorch(t)
	names := []string{}
	for name := range testrun.Executables(t) {
		names = append(names, name)
	}
	examples, err := filepath.Glob("../../../examples/*/*/main.go")
	if err != nil || len(examples) < 25 {
		t.Fatalf("%d examples, error %v", len(examples), err)
	}
	for _, file := range examples {
		names = append(names, filepath.Dir(file))
	}
	finder := testrun.Finder(t)
	finder.CacheDir = t.TempDir()
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			exe, err := finder.Find(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			var report sdktest.Report
			client, err := plugin.Start(t.Context(), exe, sdk.KindQuantizer, plugin.Options{})
			if err == nil {
				report = sdktest.CheckQuantizer(conformance.Quantizer(t.Context(), client),
					sdktest.On(m))
			} else if client, err = plugin.Start(t.Context(), exe, sdk.KindOptimizer,
				plugin.Options{}); err != nil {
				t.Fatal(err)
			} else {
				report = sdktest.CheckOptimizer(conformance.Optimizer(t.Context(), client),
					sdktest.On(m))
			}
			defer client.Close()
			if report.Failed() {
				t.Errorf("\n%s", report)
			}
		})
	}
}

// TestTorchTraining checks that a Llama of transformers, trained with cage-torch, has the losses
// and weights of a run of cage from the same weights on the same batches, with the same quantizer,
// optimizer and correction.
//
// Sums have another order. As soon as this rounds one weight or activation to another grid point,
// losses part, at first by some 1e-4. How far they get says a second training with cage-torch, from
// weights that are moved by a rounding error: cage must be as near as that.
func TestTorchTraining(t *testing.T) {
	const steps = 100
	hub := t.TempDir()
	if out, err := exec.Command(python(t), torchTests+"llama.py", "write", hub).
		CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, c := range []struct {
		name, quantizer, optimizer, rest string
		activations, fused               bool
		vectors                          bool // are the optimizer's, too, and not those of rest
		rate                             float64
		early                            int // steps without another grid point, on any processor
	}{
		{name: "SGD", quantizer: "quest", optimizer: "sgd", rest: "sgd", rate: 0.02, early: 1},
		{name: "AdamW", quantizer: "quest", optimizer: "adamw", rest: "adamw", rate: 1e-3, early: 10},
		{name: "activations", quantizer: "mxfp4", optimizer: "sgd", rest: "sgd", activations: true,
			rate: 0.02, early: 3},
		{name: "trained scales", quantizer: "lsq", optimizer: "adamw", rest: "adamw", fused: true,
			rate: 1e-4, early: steps},
		{name: "refreshes", quantizer: "quest", optimizer: "shampoo", rest: "adamw", fused: true,
			vectors: true, rate: 1e-3, early: 1},
		{name: "Muon", quantizer: "absmax", optimizer: "muon", rest: "adamw", rate: 1e-3, early: 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			data, validation := testrun.Dataset(t)
			role := ".weights"
			if c.activations {
				role = ""
			}
			cfg := testrun.Parse(t, testrun.ConfigText(data, validation, filepath.Join(t.TempDir(), "run")),
				fmt.Sprintf("model.init=%q", hub), testrun.OtherTokens, "model.context=32", "model.layers=2",
				"model.width=64", "model.heads=2", "model.hidden=128", "train.clip=0.0",
				"quantizer={}", fmt.Sprintf("quantizer%s={plugin=%q}", role, c.quantizer),
				fmt.Sprintf(`optimizer={plugin=%q, rest={plugin="adamw"}}`, c.optimizer),
				"optimizer.refresh_delay=0", "method={strength=1.0, silence=0.1}",
				fmt.Sprintf(`schedule={kind="constant", rate=%v}`, c.rate),
				fmt.Sprintf("train.steps=%d", steps))
			testrun.Train(t, cfg, train.Options{})
			want := losses(t, cfg.Train.Out)
			weights := matrices(t, cfg.Model, testrun.Values(t, testrun.Newest(t, cfg.Train.Out)))
			settings := map[string]any{"tokens": batches(t, data, uint64(cfg.Data.Seed), steps),
				"activations": c.activations, "fused": c.fused, "rate": c.rate, "steps": steps, "strength": 1.0,
				"silence": 0.1, "moved": false, "vectors": c.vectors,
				"quantizer": c.quantizer, "optimizer": c.optimizer, "rest": c.rest}
			got := trainInPython(t, settings)
			if len(want) != steps || len(got.Losses) != steps {
				t.Fatalf("%d losses and %d, want %d", len(want), len(got.Losses), steps)
			}
			settings["moved"] = true
			moved := trainInPython(t, settings)
			early, most := difference(got.Losses[:c.early], want), difference(got.Losses, want)
			off := apart(t, got.Weights, weights)
			mostMoved, offMoved := difference(moved.Losses, got.Losses), apart(t, moved.Weights, got.Weights)
			t.Logf("losses from %.6f to %.6f, differences up to step %d of at most %.1e, of all %.1e, norm "+
				"of the difference of final weights %.1e of theirs; from moved weights %.1e and %.1e",
				want[0], want[steps-1], c.early, early, most, off, mostMoved, offMoved)
			if !(early <= 1e-5 && most <= max(1e-5, 4*mostMoved) && off <= max(1e-4, 4*offMoved)) {
				t.Errorf("losses %v, want %v", got.Losses, want)
			}
			if c.name != "SGD" {
				return
			}
			settings["strength"] = 0.9
			if most := difference(trainInPython(t, settings).Losses, want); most <= 1e-4 {
				t.Errorf("with another strength, losses differ by %.1e: the test would not find it", most)
			}
		})
	}
}

func difference(got, want []float64) (most float64) {
	for i, v := range got {
		most = max(most, math.Abs(v-want[i]))
	}
	return most
}

func losses(t *testing.T, dir string) (list []float64) {
	t.Helper()
	for _, record := range testrun.Records(t, dir) {
		var r struct {
			Loss     float64
			GradNorm *float64 `json:"grad_norm"` // of a training step, not of an evaluation
		}
		if err := json.Unmarshal([]byte(record), &r); err != nil {
			t.Fatal(err)
		}
		if r.GradNorm != nil {
			list = append(list, r.Loss)
		}
	}
	return list
}

// batches returns the tokens of a run's batches, each of 4 sequences of 32 tokens.
func batches(t *testing.T, path string, seed uint64, steps int) (tokens []int32) {
	t.Helper()
	file, err := dataset.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	w, err := dataset.NewWindows(file, dataset.WindowsConfig{Context: 32, Batch: 4, Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	batch := make([]int32, w.BatchLen())
	for i := range steps {
		if err := w.At(int64(i), batch); err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, batch...)
	}
	return tokens
}

type trainedInPython struct {
	Losses  []float64
	Weights map[string][]float64
}

// trainInPython trains with cage-torch.
func trainInPython(t *testing.T, settings map[string]any) (result trainedInPython) {
	t.Helper()
	text, err := json.Marshal(settings)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "settings.json")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python(t), torchTests+"llama.py", "train", path)
	cmd.Env = append(os.Environ(), pluginPath(t))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &result); err != nil {
		t.Fatal(err)
	}
	return result
}

// matrices returns those of the blocks among parameters of cage, by the names of transformers.
func matrices(t *testing.T, s architecture.Settings, params map[string][]float32,
) map[string][]float64 {
	t.Helper()
	layout, err := huggingface.Layout(s)
	if err != nil {
		t.Fatal(err)
	}
	list := map[string][]float64{}
	for _, m := range layout {
		if len(m.Param.Dims) != 2 || !strings.Contains(m.Tensor, "layers") {
			continue
		}
		columns := m.Param.Dims[1]
		for _, row := range m.Rows {
			for _, v := range params["param/"+m.Param.Name][row*columns:][:columns] {
				list[m.Tensor] = append(list[m.Tensor], float64(v))
			}
		}
	}
	return list
}

// apart returns the norm of the difference of all weights, relative to that of want's.
func apart(t *testing.T, got, want map[string][]float64) float64 {
	t.Helper()
	var off, all float64
	for name, w := range want {
		if len(got[name]) != len(w) {
			t.Fatalf("%s has %d elements, want %d", name, len(got[name]), len(w))
		}
		for i, v := range w {
			d := got[name][i] - v
			off += d * d
			all += v * v
		}
	}
	if len(want) != 14 {
		t.Errorf("%d tensors are compared, want 14", len(want))
	}
	return math.Sqrt(off / all)
}

// TestTorchOperations checks that exact operations have the values of the reference implementation
// on all pairs of special numbers: ties, zeros, subnormal numbers, the largest, infinities and NaN.
func TestTorchOperations(t *testing.T) {
	m := startTorch(t)
	special := []float64{0, math.Copysign(0, -1), 0.5, -0.5, 1.5, 2.5, -2.5, 1, -1, 3, 7, 0.1, 1.0 / 3,
		1e-45, -3e-42, math.SmallestNonzeroFloat32 * 8388608, 1e-38, 8388607.5, 8388609, 16777217,
		2147483500,
		math.MaxFloat32, -math.MaxFloat32, math.Inf(1), math.Inf(-1), math.NaN(), 1.1754942e-38, 126,
		-149}
	var x, y []float64
	var i, j []int32
	ints := []int32{0, 1, -1, 2, 7, 31, math.MaxInt32, math.MinInt32, 65536, -65537}
	for a, v := range special {
		for b, w := range special {
			x, y = append(x, v), append(y, w)
			i, j = append(i, ints[a%len(ints)]), append(j, ints[b%len(ints)])
		}
	}
	n := len(x)
	b := program.NewBuilder("operations")
	f, g := b.Input("x", program.FloatType(n)), b.Input("y", program.FloatType(n))
	k, l := b.Input("i", program.Type{DType: program.Int, Shape: []int{n}}),
		b.Input("j", program.Type{DType: program.Int, Shape: []int{n}})
	u, v := k.Convert(program.Uint), l.Convert(program.Uint)
	thirty, steps := b.ConstUint(31), g.Clamp(b.Const(-300), b.Const(300)).Round()
	whole := f.IsFinite().Select(f.Clamp(b.Const(-2e9), b.Const(2e9)), b.Const(0))
	for name, value := range map[string]program.Value{
		"neg": f.Neg(), "abs": f.Abs(), "sign": f.Sign(), "sqrt": f.Sqrt(), "floor": f.Floor(),
		"round": f.Round(), "logb": f.Logb(), "is_finite": f.IsFinite(), "not": f.IsFinite().Not(),
		"add": f.Add(g), "sub": f.Sub(g), "mul": f.Mul(g), "div": f.Div(g), "max": f.Max(g),
		"min":   f.Min(g),
		"ldexp": g.IsFinite().Select(b.Const(1.5), f).Ldexp(steps.Clamp(b.Const(-120), b.Const(120))),
		"clamp": f.IsFinite().Select(f, b.Const(math.Inf(-1))).Clamp(b.Const(-2.5), b.Const(8388608)),
		"eq":    f.Eq(g), "ne": f.Ne(g), "lt": f.Lt(g), "le": f.Le(g), "gt": f.Gt(g), "ge": f.Ge(g),
		"select": f.Lt(g).Select(f, g), "to int": whole.Convert(program.Int), "bits": f.Abs().
				Bitcast(program.Uint),
		"add 3": f.Shift(3), "scale": f.Scale(0.1), "reciprocal": b.Const(1).Div(f),
		"third":   f.Div(b.Const(3)),
		"int neg": k.Neg(), "int abs": k.Abs(), "int sign": k.Sign(), "int not": k.Not(),
		"int add": k.Add(l),
		"int sub": k.Sub(l), "int mul": k.Mul(l), "int max": k.Max(l), "int and": k.And(l),
		"int lt":   k.Lt(l),
		"uint not": u.Not(), "uint add": u.Add(v), "uint sub": u.Sub(v), "uint mul": u.Mul(v),
		"uint xor": u.Xor(v),
		"uint lt":  u.Lt(v), "uint shl": u.Shl(v.And(thirty)), "uint shr": u.Shr(v.And(thirty)),
		"int shr":   k.Shr(l.And(thirty.Convert(program.Int))),
		"int shl":   k.Shl(l.And(thirty.Convert(program.Int))),
		"int float": k.Convert(program.Float), "uint float": u.Convert(program.Float),
		"from bits":  u.Bitcast(program.Float),
		"float bool": f.Convert(program.Bool), "int bool": k.Convert(program.Bool),
		"uint int": u.Convert(program.Int),
	} {
		b.Output(strings.ReplaceAll(name, " ", "_"), value)
	}
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	inputs := map[string]reference.Tensor{"x": reference.Floats(x, n), "y": reference.Floats(y, n),
		"i": reference.Ints(i, n), "j": reference.Ints(j, n)}
	want, err := reference.Run32(p, inputs)
	if err != nil {
		t.Fatal(err)
	}
	got, err := m.Run(p, inputs)
	if err != nil {
		t.Fatal(err)
	}
	for name, w := range want {
		if err := near(got[name], w, 0); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
