// Package pythonabsmax tests the plugin in this directory, a Python program, as a host uses it:
// through its process.
package pythonabsmax

import (
	"errors"
	"math"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/train/conformance"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/sdktest"
	"github.com/cage-qat/cage/sdk/spec"
)

const script = "./python-absmax"

var imported = sync.OnceValues(func() ([]byte, error) {
	return exec.Command("python3", "-c", "import cage_sdk").CombinedOutput()
})

// needPackage skips the test if Python cannot run the plugin.
func needPackage(t *testing.T) {
	t.Helper()
	if out, err := imported(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		t.Skipf("the Python plugin was NOT tested: python3 with cage-sdk is needed, as make python has "+
			"it (%v: %s)", err, lines[len(lines)-1])
	}
}

func start(t *testing.T) *plugin.Client {
	t.Helper()
	needPackage(t)
	client, err := plugin.Start(t.Context(), plugin.Executable{Name: "python-absmax", Path: script},
		sdk.KindQuantizer, plugin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// inGo is the same algorithm, written with package sdk.
type inGo struct{}

func (inGo) Describe() sdk.Description {
	return sdk.Description{
		Name: "python-absmax", Version: "2.0.0",
		Doc:        "Symmetric integers with one scale for each row, in Python.",
		Parameters: []sdk.Parameter{sdk.Int("bits", 4, 2, 8, "bits of a code, with its sign")},
	}
}

func (inGo) Quantize(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	largest := x.Abs().MaxRow()
	finite := largest.IsFinite()
	step := largest.Scale(1 / float64(int(1)<<(site.Int("bits")-1)-1)).Max(b.Const(0x1p-126))
	scale := finite.Select(step, b.Const(math.NaN()))
	codes := x.Div(scale).Round()
	return sdk.Quantized{Value: codes.Mul(scale), Codes: finite.Select(codes, b.Const(0)),
		Scale: scale, Homogeneous: true}, nil
}

func (inGo) Unpack(
	_ *program.Builder, codes, scale program.Value, _ sdk.Site,
) (program.Value, error) {
	return codes.Mul(scale), nil
}

func TestDescription(t *testing.T) {
	if diff := cmp.Diff(inGo{}.Describe(), start(t).Description()); diff != "" {
		t.Errorf("the description differs (-in Go +in Python):\n%s", diff)
	}
}

// TestQuantize checks that both programs, and their results on the same numbers, are equal.
func TestQuantize(t *testing.T) {
	client := start(t)
	random := rand.New(rand.NewPCG(1, 2))
	for _, shape := range [][]int{{5}, {1, 1}, {4, 33}, {2, 3, 64}} {
		for _, bits := range []int{2, 4, 8} {
			values, err := client.Resolve(map[string]any{"bits": bits})
			if err != nil {
				t.Fatal(err)
			}
			site := sdk.Site{Role: sdk.RoleActivation, Name: "layers.0.wq", Shape: shape, Values: values}
			want, err := sdk.BuildQuantizer(inGo{}, site)
			if err != nil {
				t.Fatal(err)
			}
			got, err := client.Quantize(t.Context(), site)
			if err != nil {
				t.Fatal(err)
			}
			if got.Program.Hash() != want.Program.Hash() || got.Unpack.Hash() != want.Unpack.Hash() {
				t.Errorf("shape %v, %d bits: in Go\n%s\nin Python\n%s", shape, bits, want.Program, got.Program)
			}
			x := numbers(random, shape)
			w, g := results(t, want, x), results(t, got, x)
			if diff := cmp.Diff(w, g, cmpopts.EquateNaNs()); diff != "" ||
				got.Homogeneous != want.Homogeneous {
				t.Errorf("shape %v, %d bits (-in Go +in Python):\n%s", shape, bits, diff)
			}
		}
	}
}

// numbers returns normal numbers, a zero and, in the last of several rows, a NaN.
func numbers(random *rand.Rand, shape []int) reference.Tensor {
	n := 1
	for _, d := range shape {
		n *= d
	}
	data := make([]float64, n)
	for i := range data {
		data[i] = random.NormFloat64()
	}
	data[0] = 0
	if n > shape[len(shape)-1] {
		data[n-1] = math.NaN()
	}
	return reference.Floats(data, shape...)
}

// results returns all outputs of the program, and the unpacked value.
func results(t *testing.T, p spec.Quantizer, x reference.Tensor) map[string][]float64 {
	t.Helper()
	out, err := reference.Run(p.Program, map[string]reference.Tensor{spec.InputX: x})
	if err != nil {
		t.Fatal(err)
	}
	unpacked, err := reference.RunArgs(p.Unpack, out[spec.OutputCodes], out[spec.OutputScale])
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]float64{"unpacked": unpacked[0].Float64s()}
	for name, v := range out {
		all[name] = v.Float64s()
	}
	return all
}

// TestConformance runs the conformance kit on the reference implementation and on the CPU.
func TestConformance(t *testing.T) {
	client := start(t)
	device, err := engine.Open(device.CPU, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cpu := conformance.NewDevice(device)
	t.Cleanup(func() { cpu.Close(); device.Close() })
	for _, check := range sdktest.CheckQuantizer(conformance.Quantizer(t.Context(), client),
		sdktest.On(cpu)).Checks {
		for _, failure := range check.Failures {
			t.Errorf("%s: %s", check.Name, failure)
		}
	}
}

// TestRefusal checks that an unsupported site is refused.
func TestRefusal(t *testing.T) {
	client := start(t)
	values, err := client.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Quantize(t.Context(), sdk.Site{Role: sdk.RoleWeight, Name: "w", Values: values})
	if !errors.Is(err, plugin.ErrRefused) || !strings.Contains(err.Error(), "a scalar has no rows") {
		t.Errorf("got %v", err)
	}
}

// TestMistake checks that an exception is not a refusal. No host asks for a single bit, which is
// not declared.
func TestMistake(t *testing.T) {
	values := sdk.NewValues(map[string]any{"bits": 1})
	_, err := start(t).Quantize(t.Context(),
		sdk.Site{Role: sdk.RoleWeight, Name: "w", Shape: []int{2, 4}, Values: values})
	if !errors.Is(err, plugin.ErrFailed) || !strings.Contains(err.Error(), "division by zero") {
		t.Errorf("got %v", err)
	}
}

// TestByHand checks the message to a person who starts the plugin.
func TestByHand(t *testing.T) {
	needPackage(t)
	out, err := exec.Command(script).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 ||
		!strings.Contains(string(out), "python-absmax is a plugin of cage") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestEnds checks that the process ends when the host closes it.
func TestEnds(t *testing.T) {
	client := start(t)
	client.Close()
	<-client.Done()
}
