package step_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/host/testing/testkernel"
	"github.com/cage-qat/cage/host/testing/testrows"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

var rewrite = flag.Bool("update", false, "write docs/design/kernels.md anew")

// quantizers lists the shipped quantizers, in their different forms.
var quantizers = []string{
	`{plugin="quest"}`, `{plugin="quest", form="official", mask="clip"}`,
	`{plugin="quest", form="ternary"}`, `{plugin="quest", rotation="none"}`,
	`{plugin="mxfp4"}`, `{plugin="mxfp4", rotation="32", scale_rule="quest"}`,
	`{plugin="mxfp4", scale_rule="absmax34", mask="trust"}`,
	`{plugin="nvfp4"}`, `{plugin="nvfp4", rotation="16"}`, `{plugin="nvfp4", scale_rule="mse"}`,
	`{plugin="nvfp4", weight_blocks="16x16"}`,
	`{plugin="absmax"}`, `{plugin="lsq"}`, `{plugin="lsq", form="stableqat", surrogate="sine"}`,
	`{plugin="paretoq"}`, `{plugin="paretoq", bits=1}`, `{plugin="grid"}`,
}

const kernelsPage = "../../../docs/design/kernels.md"

const kernelsHead = `<!-- Written by: go test ./host/train/step -run TestKernels -update -->

# Quantizers as kernels

On a GPU in bfloat16 the program of a quantizer becomes one kernel for its forward and one for its backward pass
([the guide to GPUs](../guide/gpu.md#kernels)). Numbers of a whole tensor, such as its largest element, are computed before it, as
operations. This table is what a test finds for the plugins of this repository on a weight of 32 × 384: it compares
each kernel, executed from its text, with the reference executor in binary32: all codes are equal.

The last column says whether both operands of a product can be codes (` + "`device.products`" + `): "integer" means whole numbers of
8 bits with one scale for each row.

| quantizer | forward | backward | codes |
|---|---|---|---|
`

// TestKernels checks that the kernels of both passes of every shipped quantizer give the results of
// the reference implementation, and that docs/design/kernels.md lists these kernels.
func TestKernels(t *testing.T) {
	testlevel.Long(t, "runs kernels in an interpreter")
	var page bytes.Buffer
	page.WriteString(kernelsHead)
	const withTable = "examples/plugins/nf4"
	example := testrun.Example(t, filepath.Base(withTable))
	for _, settings := range append(slices.Clone(quantizers), `{plugin="`+withTable+`"}`) {
		found := strings.Replace(settings, withTable, example.Path, 1)
		plan := testrun.Plan(t, testrun.Config(t, testrun.TwoLayers, "model.vocab=32", "model.width=32",
			"model.hidden=384", "quantizer="+found))
		for _, r := range plan.Rules {
			if r.Name != "layers.0.mlp.down" {
				continue
			}
			forward, backward := partsOf(t, r.Quantizer)
			ahead, codes := kernelOf(t, settings, forward), "no"
			if factored, ok := passes.FactorRows(forward, spec.OutputValue); ok {
				codes = string(device.IntegerProducts)
				if with := kernelOf(t, settings, factored); with != ahead {
					t.Errorf("%s: with its codes the forward pass is %s, without them %s", settings, with, ahead)
				}
			}
			fmt.Fprintf(&page, "| `%s` | %s | %s | %s |\n", settings, ahead, kernelOf(t, settings, backward),
				codes)
		}
	}
	if *rewrite {
		if err := os.WriteFile(kernelsPage, page.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(kernelsPage)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, page.Bytes()) {
		t.Errorf("%s is not what the quantizers are: run this test with -update", kernelsPage)
	}
}

// TestRows checks that the CPU computes both passes of every shipped quantizer in one pass over
// memory, with and without the final rotation, and compares with the reference implementation.
func TestRows(t *testing.T) {
	for i, settings := range quantizers {
		if strings.Contains(settings, `weight_blocks="16x16"`) {
			continue // a scale spans sixteen rows
		}
		if testing.Short() && i%3 != 1 {
			continue
		}
		plan := testrun.Plan(t, testrun.Config(t, testrun.TwoLayers, "model.vocab=32", "model.width=32",
			"model.hidden=384", "quantizer="+settings))
		for _, r := range plan.Rules {
			if r.Name != "layers.0.mlp.down" {
				continue
			}
			forward, backward := partsOf(t, r.Quantizer)
			whole, wholeBack := split(t, r.Quantizer, r.Quantizer.Program)
			programs := []*program.Program{forward, backward, whole, wholeBack}
			if factored, ok := passes.FactorRows(forward, spec.OutputValue); ok {
				programs = append(programs, factored)
			}
			for _, p := range programs {
				for _, storage := range []passes.Storage{passes.Float32, passes.BFloat16} {
					stored := storedAs(storage)
					compareKernel(t, fmt.Sprintf("%s, %s, %s", settings, p.Name, storage), p, stored,
						func(in map[string]reference.Tensor) (map[string]reference.Tensor, error) {
							out, computed, err := testrows.Run(p, 32, stored, in)
							if err == nil && !computed {
								t.Errorf("%s, %s: nothing is computed by rows", settings, p.Name)
							}
							return out, err
						})
				}
			}
		}
	}
}

// storedAs returns storage types: the given type for activations of a quantizer, 8 bits for codes.
func storedAs(storage passes.Storage) map[string]passes.Storage {
	stored := map[string]passes.Storage{passes.OutputIntegers: passes.Int8}
	for _, name := range []string{spec.InputX, spec.OutputValue, autodiff.Prefix +
		spec.OutputSurrogate, autodiff.Prefix + spec.InputX} {
		stored[name] = storage
	}
	return stored
}

// partsOf returns the programs of both passes as a step uses them: without the rotation that ends
// the value.
func partsOf(t *testing.T, q *spec.Quantizer) (forward, backward *program.Program) {
	t.Helper()
	p := q.Program
	if block := passes.EndingRotation(p, spec.OutputValue); block > 0 {
		var err error
		if p, err = passes.UndoRotation(p, block, spec.OutputValue, spec.OutputSurrogate); err != nil {
			t.Fatal(err)
		}
	}
	return split(t, q, p)
}

// split splits a program of a quantizer into its passes.
func split(
	t *testing.T, q *spec.Quantizer, p *program.Program,
) (forward, backward *program.Program) {
	t.Helper()
	wrt := []string{spec.InputX}
	for _, s := range q.Trained {
		wrt = append(wrt, spec.TrainedPrefix+s.Name)
	}
	parts, err := autodiff.Split(p, []string{spec.OutputValue}, spec.OutputSurrogate, wrt...)
	if err != nil {
		t.Fatal(err)
	}
	return parts.Forward, parts.Backward
}

// kernelOf compares the kernel of a program with the reference implementation, with numbers in
// float32 and in bfloat16, and returns a description of it.
func kernelOf(t *testing.T, settings string, p *program.Program) string {
	t.Helper()
	const rows = 32
	for _, storage := range []passes.Storage{passes.Float32, passes.BFloat16} {
		stored := storedAs(storage)
		k, err := testkernel.Compile(p, rows, stored)
		var refused *passes.Refusal
		if errors.As(err, &refused) {
			return "operations: " + refused.Reason
		}
		if err != nil {
			t.Fatal(err)
		}
		compareKernel(t, fmt.Sprintf("%s, %s, %s", settings, p.Name, storage), p, k.Stored, k.Run)
		if storage == passes.BFloat16 {
			return describeKernel(k)
		}
	}
	return ""
}

func describeKernel(k *testkernel.Program) string {
	switch {
	case k.Kernel == nil:
		return "operations"
	case k.Whole == nil:
		return "one kernel"
	}
	if len(k.Whole.Outputs) == 1 {
		return "one kernel, and operations for one number"
	}
	return fmt.Sprintf("one kernel, and operations for %d numbers", len(k.Whole.Outputs))
}

// compareKernel runs a kernel on random numbers and compares it with the reference implementation
// in binary32. Another order of sums, and rotations that split numbers in two bfloat16 parts, may
// move a number across the boundary between two codes; this happens to none of these numbers.
func compareKernel(t *testing.T, name string, p *program.Program, stored map[string]passes.Storage,
	run func(map[string]reference.Tensor) (map[string]reference.Tensor, error)) {
	t.Helper()
	rng := rand.New(rand.NewPCG(3, 4))
	inputs := map[string]reference.Tensor{}
	for _, in := range p.Inputs {
		x := reference.Tensor{Type: in.Type}
		for range in.Type.Size() {
			v := float64(float32(rng.NormFloat64()))
			if stored[spec.InputX] == passes.BFloat16 { // representable in bfloat16
				v = float64(math.Float32frombits(math.Float32bits(float32(v)) &^ 0xffff))
			}
			if in.Type.DType == program.Float {
				x.Floats = append(x.Floats, v)
			} else {
				x.Ints = append(x.Ints, int64(rng.IntN(2)))
			}
		}
		if len(in.Type.Shape) == 0 && in.Type.DType == program.Float {
			x.Floats[0] = 0.3 // a step size
		}
		inputs[in.Name] = x
	}
	got, err := run(inputs)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	want, err := reference.Run32(p, inputs)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range p.Outputs {
		relative := 1e-5
		if stored[o.Name] == passes.BFloat16 {
			relative = 1.0 / 256 // half a unit in the last place of bfloat16
		}
		apart := 0
		for i, x := range want[o.Name].Floats {
			if g := got[o.Name].Floats[i]; !(math.Abs(g-x) <= relative*math.Abs(x)+1e-4) {
				apart++
			}
		}
		for i, n := range want[o.Name].Ints {
			if got[o.Name].Ints[i] != n {
				apart++
			}
		}
		if size := p.TypeOf(o.Value).Size(); apart > 0 {
			t.Errorf("%s: %d of %d elements of %s are not those of the reference implementation", name,
				apart, size, o.Name)
		}
	}
}

// squash is a quantizer that computes 2·tanh(x/2) on rotated numbers. It is smooth, so that it does
// not amplify errors of rounding to bfloat16. Its backward pass reads x.
type squash struct{}

func (squash) Describe() sdk.Description { return sdk.Description{Name: "squash"} }

func (squash) Quantize(b *program.Builder, x program.Value, _ sdk.Site) (sdk.Quantized, error) {
	y := x.Hadamard(16).Scale(0.5).Tanh().Hadamard(16).Scale(2)
	return sdk.Quantized{Value: y, Surrogate: y}, nil
}

// TestKernelBodies runs the body of each kernel as graph operations: the sums of the loss, and
// norms and gates that are joined to quantizers. Losses and gradients must equal those without
// kernels up to the rounding of tensors that are stored in bfloat16.
func TestKernelBodies(t *testing.T) {
	testlevel.Long(t, "compiles many steps")
	for _, kind := range []string{"llama", "olmo2", "qwen3"} {
		for name, q := range map[string]sdk.Quantizer{"identity": identity{}, "squash": squash{}} {
			for _, recompute := range []string{"none", "blocks"} {
				t.Run(kind+name+recompute, func(t *testing.T) {
					cfg := sgdConfig(t, "model.vocab=1024", fmt.Sprintf("model.kind=%q", kind),
						fmt.Sprintf("train.recompute=%q", recompute))
					plan := planOf(t, cfg, q, descent{})
					plan.Dispatch = step.Single
					compareBodies(t, plan, batches(cfg, 7, 1))
				})
			}
		}
	}
}

func compareBodies(t *testing.T, plan step.Plan, b [][]int32) {
	t.Helper()
	var found [2][][]float64
	for i, kernels := range []device.Kernels{device.GraphKernels, device.BodyKernels} {
		c := compileOn(t, testdevice.Open(t,
			engine.Options{Precision: device.BFloat16, Kernels: kernels}), plan)
		found[i] = append(gradients(t, c, b),
			[]float64{run(t, c, newState(t, c), b, step.Settings{Step: 1}).Loss})
	}
	differ := false
	for i, want := range found[0] {
		name := "loss"
		if params := plan.Model.Params(); i < len(params) {
			name = "gradient of " + params[i].Name
		}
		apart := make([]float64, len(want))
		for j := range want {
			apart[j] = found[1][i][j] - want[j]
			differ = differ || apart[j] != 0
		}
		const most = 0.02
		if d := math.Sqrt(norm2(apart) / norm2(want)); !(d < most) {
			t.Errorf("%s: %.2g of its norm from that without kernels", name, d)
		}
	}
	if !differ {
		t.Error("all is the same, to the last bit: there were no kernels")
	}
}

// TestKernelBodiesOfPlugins compares the losses of such steps with quantizers of plugins, with
// products of values and of codes. Rounding can move a value to the next code, which changes single
// gradients but hardly the losses.
func TestKernelBodiesOfPlugins(t *testing.T) {
	testlevel.Long(t, "compiles the kernels of all quantizers")
	for _, quantizer := range []string{`{plugin="quest"}`,
		`{plugin="quest", form="official", mask="clip"}`, `{plugin="mxfp4"}`, `{plugin="nvfp4"}`,
		`{plugin="lsq"}`, `{plugin="absmax", bits=8}`} {
		for _, products := range []device.Products{device.FloatProducts, device.IntegerProducts} {
			t.Run(fmt.Sprint(quantizer, products), func(t *testing.T) {
				cfg := testrun.Config(t, testrun.TwoLayers, "model.vocab=1024", "quantizer="+quantizer)
				o := engine.Options{Precision: device.BFloat16, Products: products,
					Kernels: device.GraphKernels}
				want := lossesBy(t, cfg, o, step.Single)
				o.Kernels = device.BodyKernels
				for i, got := range lossesBy(t, cfg, o, step.Single) {
					near(t, fmt.Sprint("loss ", i), got, want[i], 0.02)
				}
			})
		}
	}
}
