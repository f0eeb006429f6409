package step_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/internal/pjrtrecord"
	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/step"
)

// predictVariable is the environment variable that has the path of a Python with JAX and its
// plugin for CUDA: scripts/predict.sh sets it.
const predictVariable = "CAGE_TEST_PREDICT"

// predicted is what scripts/predict.py says of a program that XLA compiled for a GPU.
type predicted struct {
	Aliases, States int64 // bytes
	Kernels         int
	Transposes      []string `json:"transposes_beside_rotations"`
	Groups          map[string]struct{ Kernels int }
}

// predict has XLA compile the step with the correction for a GPU, in bfloat16 with fused
// attention. Blocks of 512 are more than one product rotates.
func predict(t *testing.T, kernels engine.Kernels, overrides ...string) predicted {
	t.Helper()
	python := os.Getenv(predictVariable)
	if python == "" {
		t.Skip("there is no XLA for GPUs: make predict installs it, and sets " + predictVariable)
	}
	dev, r, err := pjrtrecord.Open(t, 1, engine.Options{Precision: engine.BFloat16, Attention: engine.FusedAttention, Kernels: kernels})
	if err != nil {
		t.Fatal(err)
	}
	all := []string{"model.vocab=512", "model.width=512", "model.heads=4", "model.hidden=768", "model.context=128", `device={kind="cuda", precision="bfloat16"}`}
	c, err := step.Compile(dev, testrun.Plan(t, testrun.Config(t, append(all, overrides...)...)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if err := c.Prepare(false); err != nil {
		t.Fatal(err)
	}
	dir, program := t.TempDir(), ""
	for _, p := range r.Programs(t) {
		if strings.HasPrefix(p, "module @step") {
			program = p // the last one has the correction
		}
	}
	path := filepath.Join(dir, "step.mlir")
	if err := os.WriteFile(path, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(python, "../../scripts/predict.py", "compile", path, filepath.Join(dir, "dump"))
	command.Stderr = os.Stderr
	text, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	var p predicted
	if err := json.Unmarshal(text, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPredicted: on a GPU all parameters and states are updated in place, rotations need no
// transpositions, and attention is fused, forward and backward in each of the two blocks.
func TestPredicted(t *testing.T) {
	for _, quantizer := range []string{"quest", "lsq"} {
		t.Run(quantizer, func(t *testing.T) {
			p := predict(t, engine.GraphKernels, `quantizer={plugin="`+quantizer+`"}`)
			p.check(t)
			if len(p.Transposes) > 0 {
				t.Errorf("what rotations read or write is transposed by %q", p.Transposes)
			}
			if n := p.Groups["rotation products"].Kernels; (n > 0) != (quantizer == "quest") {
				t.Errorf("%d kernels rotate", n)
			}
		})
	}
}

// check holds what is true of every step.
func (p predicted) check(t *testing.T) {
	t.Helper()
	if p.Aliases != p.States || p.States == 0 {
		t.Errorf("%d bytes are updated in place, and parameters and states have %d", p.Aliases, p.States)
	}
	if n := p.Groups["attention"].Kernels; n != 4 {
		t.Errorf("%d kernels of attention, want 4", n)
	}
}

// TestPredictedKernels: a GPU's compiler takes the kernels of every quantizer, in float32
// for weights and in bfloat16 for activations. There is one forward and one backward for
// each activation, and nothing else rotates.
func TestPredictedKernels(t *testing.T) {
	const blocks, sites = 2, 4
	for _, settings := range quantizers {
		t.Run(strings.ReplaceAll(settings, ",", ""), func(t *testing.T) { // it becomes a path of a plugin
			p := predict(t, engine.FusedKernels, "quantizer="+settings)
			p.check(t)
			if n := p.Groups["quantization"].Kernels; n < 2*blocks*sites {
				t.Errorf("%d kernels quantize, want at least %d", n, 2*blocks*sites)
			}
			if n := p.Groups["rotation products"].Kernels; n > 0 {
				t.Errorf("%d kernels rotate", n)
			}
		})
	}
}
