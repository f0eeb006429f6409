package testdevice

import (
	"fmt"
	"testing"

	"github.com/cage-qat/cage/host/compute/engine"
)

// Upload uploads a tensor in row-major order.
func Upload[T engine.Element](t testing.TB, d *engine.Device, data []T, dims ...int) *engine.Buffer {
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
func Run(t testing.TB, d *engine.Device, inputs []*engine.Buffer, build engine.BuildFunc) []*engine.Buffer {
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
func Evaluate(t testing.TB, d *engine.Device, inputs []*engine.Buffer, build engine.BuildFunc) [][]float32 {
	t.Helper()
	var values [][]float32
	for _, b := range Run(t, d, inputs, build) {
		values = append(values, Download[float32](t, b))
	}
	return values
}
