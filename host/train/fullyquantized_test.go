package train_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// fullyQuantized are the settings of examples/fully-quantized.toml.
var fullyQuantized = []string{
	"model.hidden=64", "train.steps=30", "train.eval_every=0", "train.accumulate=2",
	`quantizer={plugin="mxfp4", scale_rule="quest", rotation="32"}`,
	`quantizer.gradients={plugin="mxfp4", scale_rule="absmax34", rounding="stochastic", rotation="32", signs="random"}`,
	`quantizer.backward={plugin="mxfp4", scale_rule="absmax34", rounding="stochastic", rotation="32", signs="random"}`,
}

// TestFullyQuantized checks a training with all three products of each layer in MXFP4, with
// stochastic rounding and random rotations in the backward pass, with and without the correction. A
// resumed run gives the same bits. Quantized gradients change the losses after the first step.
func TestFullyQuantized(t *testing.T) {
	testlevel.Long(t, "trains models")
	cfg := testrun.Config(t, append(fullyQuantized, "method.lambda=5.0", "method.silence=0.5")...)
	testrun.Train(t, cfg, train.Options{})
	fell(t, cfg.Train.Out)
	inParts(t, cfg, 13)
	off := testrun.Elsewhere(t, cfg, `method.form="off"`)
	testrun.Train(t, off, train.Options{})
	fell(t, off.Train.Out)
	forward := testrun.Elsewhere(t, off, `quantizer.gradients={plugin="none"}`,
		`quantizer.backward={plugin="none"}`)
	testrun.Train(t, forward, train.Options{})
	a, b := losses(t, off.Train.Out), losses(t, forward.Train.Out)
	if a[0] != b[0] {
		t.Errorf("the first loss is %v, without quantized gradients %v", a[0], b[0])
	}
	if a[len(a)-1] == b[len(b)-1] {
		t.Error("quantized gradients change nothing")
	}
}

// publishedRecipe returns the named file in examples, which follows the authors' code, for a small
// model.
func publishedRecipe(t *testing.T, name string, overrides ...string) *config.Config {
	t.Helper()
	trainFile, validation := testrun.Dataset(t)
	layers := 1
	if name == "nvfp4-training" { // the last layer is not quantized
		layers = 2
	}
	cfg, err := config.Load(filepath.Join("../../examples", name+".toml"), append([]string{
		fmt.Sprintf("data.train=%q", trainFile), fmt.Sprintf("data.validation=%q", validation),
		fmt.Sprintf("train.out=%q", filepath.Join(t.TempDir(), "run")),
		fmt.Sprintf("model.layers=%d", layers), "model.hidden=128", "model.context=32", "train.batch=4",
		"train.steps=40", "train.eval_every=0",
	}, overrides...))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// publishedRecipes are examples of training with quantized gradients.
var publishedRecipes = []string{"quartet", "quartet2", "nvfp4-training"}

// TestPublishedRecipes checks that the recipes train, and that quantized gradients have an effect.
func TestPublishedRecipes(t *testing.T) {
	testlevel.Long(t, "trains models")
	for _, name := range publishedRecipes {
		t.Run(name, func(t *testing.T) {
			cfg := publishedRecipe(t, name)
			testrun.Train(t, cfg, train.Options{})
			fell(t, cfg.Train.Out)
			forward := testrun.Elsewhere(t, cfg, "train.steps=2", `quantizer.gradients={plugin="none"}`,
				`quantizer.backward={plugin="none"}`)
			testrun.Train(t, forward, train.Options{})
			a, b := losses(t, cfg.Train.Out), losses(t, forward.Train.Out)
			if a[0] != b[0] || a[1] == b[1] {
				t.Errorf("the first losses are %v, without quantized gradients %v", a[:2], b)
			}
		})
	}
}

// TestFullyQuantizedOnXLA checks that XLA draws the same random bits and quantizes the same numbers
// as the CPU. A number within rounding errors of the boundary between two levels may get the other
// one, so the losses drift apart with the steps.
func TestFullyQuantizedOnXLA(t *testing.T) {
	onXLA(t, 1)
	for name, cpu := range map[string]*config.Config{
		"mxfp4": testrun.Config(t,
			append(fullyQuantized, "train.steps=4", `method.form="off"`)...),
		"nvfp4-training": publishedRecipe(t, "nvfp4-training", "train.steps=4"),
		"mseden": testrun.Config(t, append(fullyQuantized, `quantizer={plugin="nvfp4", scale_rule="mse"}`,
			`quantizer.gradients={plugin="mseden"}`,
			`quantizer.backward={plugin="mseden"}`, "train.steps=4", `method.form="off"`)...),
	} {
		testrun.Train(t, cpu, train.Options{})
		xla := onCUDA(t, cpu, 1)
		testrun.Train(t, xla, train.Options{})
		want, got := losses(t, cpu.Train.Out), losses(t, xla.Train.Out)
		t.Logf("%s: %v on the CPU, %v on XLA", name, want, got)
		for i := range want {
			if d := relative(got[i], want[i]); d > 1e-3 {
				t.Errorf("%s, step %d: the loss is %v, want %v", name, i+1, got[i], want[i])
			}
		}
		if relative(got[0], want[0]) > 1e-5 || relative(got[1], want[1]) > 1e-4 {
			t.Errorf("%s: the first losses are %v, want %v", name, got[:2], want[:2])
		}
	}
}
