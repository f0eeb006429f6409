package train_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/deploy/export"
	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/model/lora"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/vfs"
)

// TestAdapters checks a training of adapters: the checkpoints hold only the factors, the loss of
// the run equals the loss of an evaluation, which merges the factors into the initial weights, a
// resumed run gives the same bits, and the merged weights are W₀ + (α/r)·B·A.
func TestAdapters(t *testing.T) {
	const all = `adapters.targets=["attn.qkv", "attn.out", "mlp.w1", "mlp.w2", "mlp.down"]`
	const some = `adapters.targets=["attn.qkv", "mlp.down"]`
	t.Run("some, with trained quantizers", func(t *testing.T) {
		testAdapters(t, false, some, `quantizer.plugin="lsq"`)
	})
	testlevel.Long(t, "trains nine runs more")
	t.Run("all", func(t *testing.T) { testAdapters(t, true, all, `quantizer.plugin="quest"`) })
	t.Run("some", func(t *testing.T) { testAdapters(t, false, some, `quantizer.plugin="quest"`) })
	t.Run("patterns", func(t *testing.T) {
		testAdapters(t, false, some, `quantizer.plugin="quest"`, `adapters.rslora=true`,
			`adapters.rank_pattern=["k_proj=3", "layers.0.self_attn.q_proj=1"]`,
			`adapters.alpha_pattern=["v_proj=5"]`)
	})
	t.Run("of a rounded model", func(t *testing.T) {
		whole := testrun.Config(t, "train.steps=6", "schedule.rate=0.02")
		testrun.Train(t, whole, train.Options{})
		cfg := testrun.Elsewhere(t, whole, fmt.Sprintf("model={init=%q}", whole.Train.Out),
			`adapters={rank=2, base="bfloat16"}`, "train.final_eval_batches=0")
		summary := testrun.Train(t, cfg, train.Options{})
		if got := evaluate(t, cfg.Train.Out); got != float64(*summary.ValLoss) {
			t.Errorf("the loss is %v in training and %v in evaluation", *summary.ValLoss, got)
		}
	})
}

func testAdapters(t *testing.T, all bool, settings ...string) {
	settings = append(settings, "adapters.rank=2", "adapters.alpha=8", "train.steps=6",
		"train.final_eval_batches=0", "schedule.rate=0.02", "quantizer.bits=4")
	cfg, dir := testrun.FromHub(t, settings...)
	summary := testrun.Train(t, cfg, train.Options{})
	state := testrun.Values(t, testrun.Newest(t, cfg.Train.Out))
	for name := range state {
		trained := lora.IsFactor(name) || strings.HasPrefix(name, "param/quantizer.")
		if strings.HasPrefix(name, "param/") && !trained {
			t.Errorf("the checkpoint has %s", name)
		}
	}
	if got := evaluate(t, cfg.Train.Out); got != float64(*summary.ValLoss) {
		t.Errorf("the loss is %v in training and %v in evaluation", *summary.ValLoss, got)
	}
	whole, _ := testrun.FromHub(t, slices.Concat(settings, []string{"train.steps=6"})...)
	if _, err := train.Run(t.Context(), whole,
		train.Options{Finder: testrun.Finder(t), StopAfter: 3}); err == nil {
		t.Fatal("the run did not stop")
	}
	testrun.Train(t, whole, train.Options{Resume: true})
	again := testrun.Values(t, testrun.Newest(t, whole.Train.Out))
	for name, want := range state {
		if !slices.Equal(again[name], want) {
			t.Errorf("%s differs in a run that was stopped", name)
		}
	}

	// The files in the PEFT format give the same factors again.
	m, err := opened(t, cfg.Train.Out, trained.Options{Export: true}).Export()
	if err != nil {
		t.Fatal(err)
	}
	peft := filepath.Join(t.TempDir(), "peft")
	if _, err := export.Write(t.Context(), "peft", vfs.At(peft), m, export.Options{}); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(filepath.Join(peft, lora.PEFTConfigFile))
	if err != nil || strings.Contains(string(written), dir) {
		t.Fatalf("%s names a directory of this machine, error %v", written, err)
	}
	named := strings.Replace(string(written), "{", `{"base_model_name_or_path": "org/model", `, 1)
	file := filepath.Join(peft, lora.PEFTConfigFile)
	if err := os.WriteFile(file, []byte(named), 0o600); err != nil {
		t.Fatal(err)
	}
	from, _ := testrun.FromHub(t,
		slices.Concat(settings, []string{fmt.Sprintf("adapters.init=%q", peft),
			"schedule.rate=1e-30", "train.steps=1", "train.weight_decay=0"})...)
	testrun.Train(t, from, train.Options{})
	for name, got := range testrun.Values(t, testrun.Newest(t, from.Train.Out)) {
		if lora.IsFactor(name) && strings.HasPrefix(name, "param/") && !slices.Equal(got, state[name]) {
			t.Errorf("%s is not that of adapters.init", name)
		}
	}
	if m, err = opened(t, from.Train.Out, trained.Options{Export: true}).Export(); err != nil ||
		m.Base != "org/model" {
		t.Errorf("the model of the adapters is %q, want that in adapters.init; error %v", m.Base, err)
	}
	wrong, _ := testrun.FromHub(t,
		slices.Concat(settings, []string{fmt.Sprintf("adapters.init=%q", peft),
			"adapters.rank=3", `adapters.targets="attn.qkv"`})...)
	_, err = train.Run(t.Context(), wrong, train.Options{Finder: testrun.Finder(t)})
	if want := "has the rank 2 and the scale "; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("another rank: error %v, want one with %q", err, want)
	}

	c, err := huggingface.Open(vfs.At(dir), huggingface.Options{Pairs: cfg.Model.RopePairs})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	started, _ := testrun.FromHub(t, fmt.Sprintf("model.init=%q", cfg.Train.Out), "train.steps=1",
		"schedule.rate=1e-30", "quantizer.plugin=\"none\"", "train.weight_decay=0")
	testrun.Train(t, started, train.Options{})
	merged := testrun.Values(t, testrun.Newest(t, started.Train.Out))
	adapters := map[string]lora.Adapter{}
	for _, a := range cfg.Adapters.Of(cfg.Model) {
		adapters[a.Weight] = a
	}
	for _, p := range c.Params() {
		want, err := c.Values(p.Name)
		if err != nil {
			t.Fatal(err)
		}
		want = slices.Clone(want)
		if a, ok := adapters[p.Name]; ok {
			A, B := state["param/"+a.A().Name], state["param/"+a.B().Name]
			row, first, width, moved := 0, 0, a.B().Dims[1], 0.0
			for _, of := range a.Parts {
				for range of.Rows {
					for j := range a.In {
						sum := 0.0
						for k := range of.Rank {
							sum += float64(B[row*width+k]) * float64(A[(first+k)*a.In+j])
						}
						moved += math.Abs(sum)
						want[row*a.In+j] += float32(of.Scale * sum)
					}
					row++
				}
				first += of.Rank
			}
			if moved == 0 {
				t.Errorf("%s has not moved", p.Name)
			}
		} else if p.Role == "matrix" && all {
			t.Errorf("%s has no adapter", p.Name)
		}
		for i, v := range merged["param/"+p.Name] {
			if math.Abs(float64(v-want[i])) > 1e-6 {
				t.Fatalf("%s[%d] is %v, want %v", p.Name, i, v, want[i])
			}
		}
	}
}

// TestAdaptersWithoutOrigin checks that adapters are not used if the provenance does not say for
// which weights they were trained.
func TestAdaptersWithoutOrigin(t *testing.T) {
	cfg, _ := testrun.FromHub(t, "adapters.rank=2", "train.steps=1", "train.final_eval_batches=0")
	testrun.Train(t, cfg, train.Options{})
	made := madeOf(t, cfg.Train.Out)
	made.Initial = nil
	if err := made.Write(rundir.At(cfg.Train.Out)); err != nil {
		t.Fatal(err)
	}
	_, err := trained.Open(t.Context(), cfg.Train.Out, trained.Options{Finder: testrun.Finder(t)})
	if err == nil || !strings.Contains(err.Error(), `provenance.json has no "initial"`) {
		t.Errorf("error %v", err)
	}
}

// TestFrozenInBFloat16 checks that frozen weights which are exact in bfloat16 can be stored in it
// without a change of the training, which also samples texts.
func TestFrozenInBFloat16(t *testing.T) {
	for name, settings := range map[string][]string{
		"all":                           nil,
		"some, with trained quantizers": {`quantizer={plugin="lsq"}`, `adapters.targets="attn.qkv"`},
		"some, quantized again": {`quantizer={plugin="mxfp4", backward={plugin="mxfp4"}}`,
			`adapters.targets="attn.qkv"`, `train.requantize="off"`},
	} {
		t.Run(name, func(t *testing.T) { testFrozenInBFloat16(t, settings...) })
	}
}

func testFrozenInBFloat16(t *testing.T, settings ...string) {
	cfg, dir := testrun.FromHub(t, append(settings, "adapters.rank=2", "train.steps=3",
		"schedule.rate=0.02", `train.samples=["the"]`, "train.eval_every=2")...)
	exact := true
	c, err := huggingface.Open(vfs.At(dir), huggingface.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, p := range c.Params() {
		values, err := c.Values(p.Name)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range values {
			exact = exact && math.Float32bits(v)&0xffff == 0
		}
	}
	if !exact {
		t.Fatal("the weights are not exact in bfloat16")
	}
	short := testrun.Elsewhere(t, cfg, `adapters.base="bfloat16"`)
	var states [2]map[string][]float32
	for i, cfg := range []*config.Config{cfg, short} {
		testrun.Train(t, cfg, train.Options{})
		states[i] = testrun.Values(t, testrun.Newest(t, cfg.Train.Out))
	}
	for name, want := range states[0] {
		if !slices.Equal(states[1][name], want) {
			t.Errorf("%s differs with frozen weights in bfloat16", name)
		}
	}
}

// TestFrozenAsCodes checks that frozen weights which are on the grid of their quantizer can be
// stored as its codes and scales without a change of the training, also of one that is resumed.
func TestFrozenAsCodes(t *testing.T) {
	const group = `granularity="group", group=32, scale_dtype="f16"`
	for _, c := range []struct {
		name, quantizer string
		bits            float64 // of a weight
	}{
		{"Q4_0", `{plugin="absmax", grid="signed", ` + group + `}`, 4.5},
		{"Q4_1", `{plugin="absmax", grid="minimum", ` + group + `}`, 5},
		{"Q5_0", `{plugin="absmax", bits=5, grid="signed", ` + group + `}`, 8.5},
		{"Q1_0", `{plugin="absmax", bits=1, grid="sign", ` + group + `}`, 1.5},
		{"ternary", `{plugin="absmax", bits=2, rounding="llama.cpp", ` + group + `}`, 2.5},
		{"MXFP4", `{plugin="mxfp4"}`, 5},
		{"bfloat16", `{plugin="absmax", granularity="group", group=16, scale_dtype="bf16"}`, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name != "Q4_0" {
				testlevel.Long(t, "trains three runs more")
			}
			quantizer := "quantizer={weights=" + c.quantizer + "}"
			cfg, _ := testrun.FromHub(t, quantizer)
			testrun.Train(t, cfg, train.Options{})
			m, err := opened(t, cfg.Train.Out, trained.Options{Export: true}).Export()
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(t.TempDir(), "rounded")
			_, err = export.Write(t.Context(), "hf", vfs.At(dir), m, export.Options{})
			if err != nil {
				t.Fatal(err)
			}
			floats := testrun.Elsewhere(t, cfg, fmt.Sprintf("model.init=%q", dir), "adapters.rank=2",
				"train.steps=6", "schedule.rate=0.02", "train.accumulate=2", "method.silence=0.25",
				"train.eval_every=2", `train.samples=["the"]`)
			codes := testrun.Elsewhere(t, floats, `adapters.base="codes"`)
			testrun.Train(t, floats, train.Options{})
			_, err = train.Run(t.Context(), codes, train.Options{Finder: testrun.Finder(t), StopAfter: 3})
			if !errors.Is(err, train.ErrInterrupted) {
				t.Fatal(err)
			}
			testrun.Train(t, codes, train.Options{Resume: true})
			testrun.SameTensors(t, "with codes", testrun.Newest(t, floats.Train.Out),
				testrun.Newest(t, codes.Train.Out))
			if a, b := losses(t, floats.Train.Out), losses(t, codes.Train.Out); !slices.Equal(a, b) {
				t.Errorf("the losses are %v with codes, want %v", b, a)
			}
			if a, b := evaluate(t, floats.Train.Out), evaluate(t, codes.Train.Out); a != b {
				t.Errorf("the evaluated loss is %v with codes, want %v", b, a)
			}
			storedAs(t, codes, dir, c.bits)
		})
	}
}

// storedAs checks the bytes of frozen weights on the device: quantized ones have so many bits for a
// number, and others 32.
func storedAs(t *testing.T, cfg *config.Config, dir string, bits float64) {
	t.Helper()
	h, err := huggingface.Open(vfs.At(dir), huggingface.Options{Pairs: cfg.Model.RopePairs})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	changed, err := cfg.Changed(func(c *config.Config) error {
		c.Model.Vocab = h.Config.Settings.Vocab
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	compiled := testrun.Compile(t, testrun.Plan(t, changed))
	plan := compiled.Plan()
	state, err := compiled.NewStateFrom(t.Context(), step.LoadParams(plan.Model, h.Values), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	got, want := 0.0, 0.0
	for name, b := range state.Tensors {
		if strings.HasPrefix(name, "param/") && !lora.IsFactor(name) {
			got += float64(b.Shape().ByteSize())
		}
	}
	for _, p := range h.Params() {
		if plan.Weights[p.Name] != nil {
			want += bits / 8 * float64(p.Size())
		} else {
			want += 4 * float64(p.Size())
		}
	}
	if got != want {
		t.Errorf("frozen weights have %v bytes, want %v", got, want)
	}
}

// TestFrozenOffTheGrid checks what is said of weights that cannot be stored as codes.
func TestFrozenOffTheGrid(t *testing.T) {
	for quantizer, want := range map[string]string{
		`{plugin="absmax"}`: "numbers of param/layers.0.attn.qkv are not on the grid of its quantizer",
		`{plugin="lsq"}`:    "attn.out cannot be stored as codes: its quantizer trains its scales",
		`{plugin="none"}`:   `adapters.base: found "codes", but no weight has a quantizer`,
	} {
		cfg, _ := testrun.FromHub(t, "quantizer={weights="+quantizer+"}", "adapters.rank=2",
			`adapters.base="codes"`)
		_, err := train.Run(t.Context(), cfg, train.Options{Finder: testrun.Finder(t)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", quantizer, err, want)
		}
	}
}

// TestRotatedAdapters checks that adapters are trained and corrected alike with operands that stay
// rotated and with operands that are rotated back.
func TestRotatedAdapters(t *testing.T) {
	cfg, _ := testrun.FromHub(t, "adapters.rank=2", "train.steps=4", "schedule.rate=0.01",
		"method.strength=2", "method.silence=0.25", `quantizer.plugin="quest"`, "quantizer.bits=4")
	back := testrun.Elsewhere(t, cfg, `train.rotations="full"`)
	var all [2][]float64
	for i, cfg := range []*config.Config{cfg, back} {
		testrun.Train(t, cfg, train.Options{})
		all[i] = losses(t, cfg.Train.Out)
	}
	for i, want := range all[1] {
		if !(relative(all[0][i], want) < 1e-4) {
			t.Errorf("the loss of step %d is %v with rotated operands, and %v without", i+1, all[0][i], want)
		}
	}
}
