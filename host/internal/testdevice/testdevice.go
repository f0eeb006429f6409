// Package testdevice opens the device that tests run on: the CPU, or the one that the environment variable
// CAGE_TEST_DEVICE names, so that the same tests check a GPU where there is one.
//
// Only tests whose assertions hold on every device use it. Those of exact bits, of rounding and of what the CPU device
// alone promises open that device themselves.
package testdevice

import (
	"cmp"
	"errors"
	"os"
	"strconv"
	"testing"

	"github.com/cage-qat/cage/host/engine"
)

// Variable is the environment variable that names the kind of device, "cpu" if it is empty.
const Variable = "CAGE_TEST_DEVICE"

// CountVariable is the environment variable that says how many replicas the device has, one if it is empty, where a
// test does not say so itself.
const CountVariable = "CAGE_TEST_DEVICE_COUNT"

// Kind is the kind of device that tests run on.
func Kind() string { return cmp.Or(os.Getenv(Variable), engine.CPU) }

// Open opens the device. It is closed when the test ends. A test that asks for more
// replicas than there are is skipped; one that runs on too many by [CountVariable] fails.
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
