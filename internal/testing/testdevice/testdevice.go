// Package testdevice opens the device that tests run on: the CPU, or the one that the environment
// variable CAGE_TEST_DEVICE names, so that the same tests can check a GPU.
//
// It is only for tests whose assertions hold on every device. Tests of exact bits, of rounding, and
// of promises of the CPU device alone open that device themselves.
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
)

// Variable is the environment variable that names the kind of device, "cpu" if it is empty.
const Variable = "CAGE_TEST_DEVICE"

// CountVariable is the environment variable with the number of replicas of the device, one if it is
// empty. It is used if a test does not specify a number.
const CountVariable = "CAGE_TEST_DEVICE_COUNT"

// Kind returns the kind of device that tests run on.
func Kind() string { return cmp.Or(os.Getenv(Variable), device.CPU) }

// Open opens the device. It is closed when the test ends. A test that requests more replicas than
// there are is skipped; one that gets too many from [CountVariable] fails.
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

// OpenCPU opens the CPU device, for tests of its own features. It is closed when the test ends.
func OpenCPU(t testing.TB, opts engine.Options) *engine.Device {
	t.Helper()
	return open(t, device.CPU, opts, false)
}

// open skips the test if there are too few replicas and skip is set.
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

// Run compiles a step for inputs of these shapes and runs it once.
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

// Evaluate is [Run] for a step whose outputs are float32, which it downloads.
func Evaluate(t testing.TB, d *engine.Device, inputs []*engine.Buffer,
	build engine.BuildFunc) [][]float32 {
	t.Helper()
	var values [][]float32
	for _, b := range Run(t, d, inputs, build) {
		values = append(values, Download[float32](t, b))
	}
	return values
}
