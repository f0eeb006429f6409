// Package testdevice opens the device that tests run on: the CPU, or the one that the environment variable
// CAGE_TEST_DEVICE names, so that the same tests can check a GPU.
//
// It is only for tests whose assertions hold on every device. Tests of exact bits, of rounding, and of what only the
// CPU device promises open that device themselves.
package testdevice

import (
	"cmp"
	"errors"
	"os"
	"strconv"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
)

// Variable is the environment variable that names the kind of device, "cpu" if it is empty.
const Variable = "CAGE_TEST_DEVICE"

// CountVariable is the environment variable with the number of replicas of the device, one if it is empty. It is used
// if a test does not specify a number.
const CountVariable = "CAGE_TEST_DEVICE_COUNT"

// Kind returns the kind of device that tests run on.
func Kind() string { return cmp.Or(os.Getenv(Variable), device.CPU) }

// Open opens the device. It is closed when the test ends. A test that asks for more
// replicas than there are is skipped; one that gets too many from [CountVariable] fails.
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
	d, err := engine.Open(Kind(), opts)
	if few, ok := errors.AsType[*engine.CountError](err); ok && asked > 0 {
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
