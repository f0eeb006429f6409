package engine_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/internal/testdevice"
)

// TestBFloat16 compares products of each layout with sums, in float64, of products of rounded operands: the operands are
// rounded and the sums are not.
func TestBFloat16(t *testing.T) {
	const batch, rows, inner, columns = 3, 33, 900, 260 // large enough for the backend to take its product of blocks
	rng := rand.New(rand.NewPCG(1, 2))
	a, b := make([]float32, batch*rows*inner), make([]float32, batch*columns*inner)
	for _, values := range [][]float32{a, b} {
		for i := range values {
			values[i] = float32(1 + 0.1*rng.NormFloat64()) // of one sign: a sum in bfloat16 would stop growing at 256
		}
	}
	d := testdevice.Open(t, engine.Options{Precision: device.BFloat16})
	x, y := testdevice.Upload(t, d, a, batch, rows, inner), testdevice.Upload(t, d, b, batch, columns, inner)
	e := compile(t, d, []engine.Spec{{Name: "a", Shape: x.Shape()}, {Name: "b", Shape: y.Shape()}}, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		turned := graph.TransposeAllAxes(in[1], 0, 2, 1)
		left := graph.TransposeAllAxes(in[0], 0, 2, 1)
		return []*graph.Node{
			engine.DotGeneral(in[0], []int{2}, []int{0}, in[1], []int{2}, []int{0}),
			engine.DotGeneral(in[0], []int{2}, []int{0}, turned, []int{1}, []int{0}),
			engine.DotGeneral(left, []int{1}, []int{0}, turned, []int{1}, []int{0}),
			graph.DotGeneral(in[0], []int{2}, []int{0}, in[1], []int{2}, []int{0}),
		}
	})
	out := run(t, e, x, y)
	product := func(a, b []float32) []float64 {
		sums := make([]float64, batch*rows*columns)
		for j := range sums {
			k, row, column := j/(rows*columns), j/columns%rows, j%columns
			q := b[(k*columns+column)*inner:][:inner]
			for n, p := range a[(k*rows+row)*inner:][:inner] {
				sums[j] += float64(p) * float64(q[n])
			}
		}
		return sums
	}
	exact, rounded := product(a, b), product(inBFloat16(a), inBFloat16(b))
	for i, want := range [][]float64{rounded, rounded, rounded, exact} {
		for j, got := range testdevice.Download[float32](t, out[i]) {
			if math.Abs(float64(got)-want[j]) > 1e-5*want[j] {
				t.Fatalf("product %d, element %d is %v, want %v", i, j, got, want[j])
			}
		}
	}
}

func inBFloat16(values []float32) []float32 {
	rounded := make([]float32, len(values))
	for i, x := range values {
		rounded[i] = bfloat16.FromFloat32(x).Float32()
	}
	return rounded
}

func TestPrecisionIsKnown(t *testing.T) {
	if _, err := engine.Open(device.CPU, engine.Options{Precision: "float8"}); err == nil || !strings.Contains(err.Error(), `precision "float8"`) {
		t.Errorf("got error %v", err)
	}
	d, err := engine.Open(device.CPU, engine.Options{Precision: device.BFloat16, TF32: true})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if info := d.BuildInfo(); info.Products != "bfloat16" || !strings.HasSuffix(info.String(), " products=bfloat16") {
		t.Errorf("the build info is %s", info)
	}
	if info := open(t).BuildInfo(); info.Products != "" || strings.Contains(info.String(), "products") {
		t.Errorf("the build info of a device in float32 is %s", info)
	}
}
