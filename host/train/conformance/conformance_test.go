package conformance_test

import (
	"context"
	"errors"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/conformance"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/sdktest"
)

// TestPlugins runs the kit on the plugin executables of this repository, with their golden files,
// on the reference implementation and the CPU. As each plugin's own test runs the kit on its code,
// a sample of the executables usually suffices. Example runs it on adamw, cage plugins test on
// absmax, nvfp4, paretoq and sgd.
func TestPlugins(t *testing.T) {
	testlevel.Long(t, "runs the kit on several plugins; Example runs it on one")
	device := conformance.NewDevice(testrun.Device(t))
	defer device.Close()
	executables := maps.Clone(testrun.Executables(t))
	sample := []string{"grid", "muon"}
	for _, c := range []struct {
		name   string
		golden string
	}{
		{name: "absmax", golden: "absmax"}, {name: "quest", golden: "kit"},
		{name: "mxfp4", golden: "kit"},
		{name: "nvfp4", golden: "kit"}, {name: "lsq", golden: "kit"}, {name: "grid"},
		{name: "paretoq", golden: "paretoq"},
		{name: "mseden", golden: "mseden"},
		{name: "adamw", golden: "adamw"}, {name: "sgd", golden: "sgd"}, {name: "muon", golden: "kit"},
		{name: "shampoo", golden: "kit"}, {name: "soap", golden: "soap"},
	} {
		if executables[c.name] == "" {
			t.Errorf("there is no plugin %s", c.name)
			continue
		}
		delete(executables, c.name)
		t.Run(c.name, func(t *testing.T) {
			if !testlevel.All() && !slices.Contains(sample, c.name) {
				t.Skip("not in the sample")
			}
			options := []sdktest.Option{sdktest.On(device)}
			if c.golden != "" {
				path := filepath.Join("../../../plugins", c.name, "testdata", c.golden+".json")
				options = append(options, sdktest.GoldenFile(t, path))
			}
			report := check(t, c.name, options...)
			if report.Failed() {
				t.Errorf("\n%s", report)
			}
			if c.golden == "" {
				return
			}
			if last := report.Checks[len(report.Checks)-1]; !strings.HasPrefix(last.Name, "golden ") ||
				last.Tried == 0 {
				t.Errorf("the golden file was not run: %+v", last)
			}
		})
	}
	for name := range executables {
		t.Errorf("the plugin %s is not tested", name)
	}
	examples, err := filepath.Glob("../../../examples/*/*/main.go")
	if err != nil || len(examples) < 25 {
		t.Fatalf("%d examples, error %v", len(examples), err)
	}
	for _, file := range examples {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			if !testlevel.All() {
				t.Skip("its own test runs the kit")
			}
			if report := check(t, filepath.Dir(file), sdktest.On(device)); report.Failed() {
				t.Errorf("\n%s", report)
			}
		})
	}
}

// check runs the kit on one plugin of the repository.
func check(t *testing.T, name string, options ...sdktest.Option) sdktest.Report {
	t.Helper()
	exe, err := testrun.Finder(t).Find(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if client, err := plugin.Start(t.Context(), exe, sdk.KindQuantizer, plugin.Options{}); err == nil {
		defer client.Close()
		return sdktest.CheckQuantizer(conformance.Quantizer(t.Context(), client), options...)
	}
	client, err := plugin.Start(t.Context(), exe, sdk.KindOptimizer, plugin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	return sdktest.CheckOptimizer(conformance.Optimizer(t.Context(), client), options...)
}

// TestRefusals checks that an error from a plugin is a refusal, but the loss of the plugin is not.
func TestRefusals(t *testing.T) {
	testlevel.Long(t, "looks for all plugins")
	exe, err := testrun.Finder(t).Find(t.Context(), "quest")
	if err != nil {
		t.Fatal(err)
	}
	client, err := plugin.Start(t.Context(), exe, sdk.KindQuantizer, plugin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	values, err := client.Resolve(map[string]any{"rotation": "full"})
	if err != nil {
		t.Fatal(err)
	}
	site := sdk.Site{Role: sdk.RoleWeight, Name: "w", Shape: []int{2, 12}, Values: values}
	ctx, cancel := context.WithCancel(t.Context())
	subject := conformance.Quantizer(ctx, client)
	refused := func(err error) bool { _, ok := errors.AsType[*sdk.Refusal](err); return ok }
	if _, err := subject.Programs(site); !refused(err) ||
		!strings.Contains(err.Error(), "12 is not a power of two") {
		t.Errorf("got %v", err)
	}
	cancel()
	if _, err := subject.Programs(site); err == nil || refused(err) {
		t.Errorf("after the end: got %v", err)
	}
}

// TestDevice runs a program with every element type twice, and more programs than the device
// caches.
func TestDevice(t *testing.T) {
	dev := conformance.NewDevice(testrun.Device(t))
	defer dev.Close()
	if dev.Name() != device.CPU {
		t.Errorf("the device is %q", dev.Name())
	}
	b := program.NewBuilder("types")
	x := b.Input("x", program.FloatType(2, 2))
	n := b.Input("n", program.Type{DType: program.Int, Shape: []int{2}})
	u := b.Input("u", program.Type{DType: program.Uint})
	on := b.Input("on", program.Type{DType: program.Bool, Shape: []int{2, 1}})
	b.Output("x", on.Select(x.Scale(0.1), x))
	b.Output("n", n.Neg())
	b.Output("u", u.Shl(b.ConstUint(1)))
	b.Output("off", on.Not())
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	inputs := map[string]reference.Tensor{
		"x": reference.Floats([]float64{1, 2, math.Inf(1), 4}, 2, 2),
		"n": reference.Ints([]int32{-7, math.MaxInt32}, 2),
		"u": reference.Uint(1<<31 + 3), "on": reference.Bools([]bool{true, false}, 2, 1),
	}
	want, err := reference.Run32(p, inputs)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got, err := dev.Run(p, inputs)
		if err != nil {
			t.Fatal(err)
		}
		for name, w := range want {
			if got[name].String() != w.String() {
				t.Errorf("%s is %s, want %s", name, got[name], w)
			}
		}
	}
	delete(inputs, "n")
	if _, err := dev.Run(p, inputs); err == nil ||
		!strings.Contains(err.Error(), `input "n" is int[2]`) {
		t.Errorf("without an input: %v", err)
	}
	for i := range 1100 {
		b := program.NewBuilder("add")
		b.Output("y", b.Input("x", program.FloatType()).Shift(float64(i)))
		p, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		out, err := dev.Run(p, map[string]reference.Tensor{"x": reference.Float(1)})
		if err != nil || out["y"].Scalar() != float64(i+1) {
			t.Fatalf("1 + %d = %v, %v", i, out["y"], err)
		}
	}
}

// TestFactorizations checks that devices refuse factorizations, which the kit does not ask for.
func TestFactorizations(t *testing.T) {
	device := conformance.NewDevice(testrun.Device(t))
	defer device.Close()
	b := program.NewBuilder("qr")
	b.Output("q", b.Input("x", program.FloatType(2, 2)).QR())
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := device.Run(p,
		map[string]reference.Tensor{"x": reference.Floats([]float64{1, 2, 3, 4}, 2, 2)}); err == nil {
		t.Error("the device factorizes")
	}
}

// TestMain lets the tests share plugins, and fails if a goroutine outlives them.
func TestMain(m *testing.M) { testrun.Main(m) }
