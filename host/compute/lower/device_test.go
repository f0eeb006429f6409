package lower_test

import (
	"fmt"
	"math"
	"sort"
	"sync"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

var openDevice = sync.OnceValues(func() (*engine.Device, error) {
	return engine.Open(testdevice.Kind(), engine.Options{Kernels: device.GraphKernels})
})

// shared opens the device once for all tests.
func shared(t testing.TB) *engine.Device {
	t.Helper()
	d, err := openDevice()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// run executes p on the device.
func run(
	t testing.TB, p *program.Program, inputs map[string]reference.Tensor,
) map[string]reference.Tensor {
	t.Helper()
	outputs := execute(t, uploadInputs(t, p, inputs),
		func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			return lower.Outputs(g, p, in)
		})
	results := map[string]reference.Tensor{}
	for i, o := range p.Outputs {
		results[o.Name] = download(t, p.TypeOf(o.Value), outputs[i])
	}
	return results
}

func uploadInputs(
	t testing.TB, p *program.Program, inputs map[string]reference.Tensor,
) []*engine.Buffer {
	t.Helper()
	var buffers []*engine.Buffer
	for _, in := range p.Inputs {
		buffers = append(buffers, upload(t, inputs[in.Name]))
	}
	return buffers
}

func execute(t testing.TB, inputs []*engine.Buffer, build engine.BuildFunc) []*engine.Buffer {
	t.Helper()
	return testdevice.Run(t, shared(t), inputs, build)
}

func upload(t testing.TB, x reference.Tensor) *engine.Buffer {
	t.Helper()
	d, shape := shared(t), x.Type.Shape
	switch {
	case x.Type.DType == program.Float:
		return testdevice.Upload(t, d, convert(x.Floats, func(v float64) float32 { return float32(v) }),
			shape...)
	case x.Type.DType == program.Int:
		return testdevice.Upload(t, d, convert(x.Ints, func(v int64) int32 { return int32(v) }), shape...)
	case x.Type.DType == program.Uint:
		return testdevice.Upload(t, d, convert(x.Ints, func(v int64) uint32 { return uint32(v) }),
			shape...)
	default:
		return testdevice.Upload(t, d, x.Bools(), shape...)
	}
}

func download(t testing.TB, typ program.Type, b *engine.Buffer) reference.Tensor {
	t.Helper()
	switch b.Shape().DType {
	case shapes.Float32:
		return reference.Floats(convert(testdevice.Download[float32](t, b),
			func(v float32) float64 { return float64(v) }), typ.Shape...)
	case shapes.Int32:
		return reference.Ints(testdevice.Download[int32](t, b), typ.Shape...)
	case shapes.Uint32:
		return reference.Uints(testdevice.Download[uint32](t, b), typ.Shape...)
	default:
		return reference.Bools(testdevice.Download[bool](t, b), typ.Shape...)
	}
}

func convert[S, T any](data []S, f func(S) T) []T {
	out := make([]T, len(data))
	for i, v := range data {
		out[i] = f(v)
	}
	return out
}

func inputSpec(name string, dims ...int) engine.Spec {
	return engine.Spec{Name: name, Shape: shapes.Make(shapes.Float32, dims...)}
}

// tolerance bounds |got − want| by abs + rel·|want|. The zero value requires equality, where −0 = 0
// and NaN = NaN.
type tolerance struct{ abs, rel float64 }

func (tol tolerance) holds(got, want float64) bool {
	if got == want || math.IsNaN(got) && math.IsNaN(want) {
		return true
	}
	return math.Abs(got-want) <= tol.abs+tol.rel*math.Abs(want) && !math.IsInf(want, 0)
}

// compare reports elements of got that differ from want; describe, if not nil,
// names the operands of an element.
func compare(
	t testing.TB, what string, tol tolerance, got, want reference.Tensor, describe func(i int) string,
) {
	t.Helper()
	if !got.Type.Equal(want.Type) {
		t.Errorf("%s: type %s, want %s", what, got.Type, want.Type)
		return
	}
	g, w := got.Float64s(), want.Float64s()
	if len(g) != len(w) {
		t.Errorf("%s: %d elements, want %d", what, len(g), len(w))
		return
	}
	bad := 0
	for i := range w {
		if tol.holds(g[i], w[i]) {
			continue
		}
		if bad++; bad > 5 {
			continue
		}
		operands := ""
		if describe != nil {
			operands = describe(i)
		}
		t.Errorf("%s: element %d%s: got %v, want %v", what, i, operands, g[i], w[i])
	}
	if bad > 5 {
		t.Errorf("%s: %d of %d elements differ", what, bad, len(w))
	}
}

// check compares all outputs of p on the device with reference.Run32.
func check(t testing.TB, tol tolerance, p *program.Program, inputs map[string]reference.Tensor) {
	t.Helper()
	want, err := reference.Run32(p, inputs)
	if err != nil {
		t.Fatal(err)
	}
	got := run(t, p, inputs)
	names := make([]string, 0, len(want))
	for name := range want {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		compare(t, fmt.Sprintf("%s: %s", p.Name, name), tol, got[name], want[name], nil)
	}
}

func build(t testing.TB, f func(b *program.Builder)) *program.Program {
	t.Helper()
	b := program.NewBuilder("test")
	f(b)
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}
