// Package testdevice opens the device on which tests run: the CPU, or the device named by the
// environment variable CAGE_TEST_DEVICE, so that the same tests can check a GPU.
//
// It is for tests whose assertions hold on every device. Tests of exact bits, of rounding and of
// features of the CPU device open that device themselves.
package testdevice

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/testing/graphexec"
)

func init() { engine.GraphsOnCPU = graphexec.Compile }

// Variable is the environment variable with the kind of device. If empty, the kind is "cpu".
const Variable = "CAGE_TEST_DEVICE"

// CountVariable is the environment variable with the number of replicas, for tests that do not
// specify a number. If empty, there is one replica.
const CountVariable = "CAGE_TEST_DEVICE_COUNT"

// Kind returns the kind of device that tests run on.
func Kind() string { return cmp.Or(os.Getenv(Variable), device.CPU) }

// Open opens the device, and closes it when the test ends. A test that asks for more replicas than
// exist is skipped; if [CountVariable] asks for too many, it fails.
func Open(t testing.TB, opts engine.Options) *engine.Device {
	t.Helper()
	asked := opts.Count
	if text := os.Getenv(CountVariable); opts.Count == 0 && text != "" {
		count, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("%s: %v", CountVariable, err)
		}
		opts.Count = count
	}
	return open(t, Kind(), opts, asked > 0)
}

// OpenCPU opens the CPU device for tests of its own features, and closes it when the test ends.
func OpenCPU(t testing.TB, opts engine.Options) *engine.Device {
	t.Helper()
	return open(t, device.CPU, opts, false)
}

// open opens a device. If there are too few replicas and skip is set, it skips the test.
func open(t testing.TB, kind string, opts engine.Options, skip bool) *engine.Device {
	t.Helper()
	d, err := engine.Open(kind, opts)
	if few, ok := errors.AsType[*engine.CountError](err); ok && skip {
		t.Skip(few)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// Upload uploads a tensor in row-major order.
func Upload[T engine.Element](t testing.TB, d *engine.Device, data []T,
	dims ...int) *engine.Buffer {
	t.Helper()
	b, err := engine.Upload(d, data, dims...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Download returns the elements of a buffer.
func Download[T engine.Element](t testing.TB, b *engine.Buffer) []T {
	t.Helper()
	data, err := engine.Download[T](b)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Run compiles a step for the given inputs and runs it once.
func Run(t testing.TB, d *engine.Device, inputs []*engine.Buffer,
	build engine.BuildFunc) []*engine.Buffer {
	t.Helper()
	specs := make([]engine.Spec, len(inputs))
	for i, b := range inputs {
		specs[i] = engine.Spec{Name: fmt.Sprint("in", i), Shape: b.Shape()}
	}
	step, err := d.Compile(t.Name(), specs, build)
	if err != nil {
		t.Fatal(err)
	}
	defer step.Close()
	outputs, err := step.Run(inputs, nil)
	if err != nil {
		t.Fatal(err)
	}
	return outputs
}

// Evaluate is [Run] for a step with float32 outputs, which it downloads.
func Evaluate(t testing.TB, d *engine.Device, inputs []*engine.Buffer,
	build engine.BuildFunc) [][]float32 {
	t.Helper()
	var values [][]float32
	for _, b := range Run(t, d, inputs, build) {
		values = append(values, Download[float32](t, b))
	}
	return values
}
