package engine_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/host/testing/testdevice"
)

// TestLoop sums the rows of a matrix, with the same constants and reductions before, in and after
// the loop.
func TestLoop(t *testing.T) {
	d := open(t)
	specs := []engine.Spec{{Name: "x", Shape: f32(4, 3)}, {Name: "scale", Shape: f32()}}
	double := func(x *graph.Node) *graph.Node { return graph.MulScalar(graph.ReduceSum(x), 2) }
	e := compile(t, d, specs, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		before := double(in[0])
		state := []*graph.Node{graph.Scalar(g, in[0].DType(), 0), before}
		state = engine.Loop(g, 4, in, state,
			func(i *graph.Node, fixed, state []*graph.Node) []*graph.Node {
				row := graph.Gather(fixed[0], graph.Reshape(i, 1))
				return []*graph.Node{graph.Add(state[0], graph.Mul(fixed[1], double(row))), graph.Neg(state[1])}
			})
		return append(state, double(state[0]), before)
	})
	x := testdevice.Upload(t, d, []float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 4, 3)
	out := run(t, e, x, testdevice.Upload(t, d, []float32{10}))
	for i, want := range []float32{1560, 156, 3120, 156} {
		if got := testdevice.Download[float32](t, out[i])[0]; got != want {
			t.Errorf("output %d is %v, want %v", i, got, want)
		}
	}
}

// TestNestedLoops runs a loop in the body of another, as for micro-batches that are computed in
// chunks. Both loops have the same constants and reductions.
func TestNestedLoops(t *testing.T) {
	d := open(t)
	total := func(x *graph.Node) *graph.Node { return graph.AddScalar(graph.ReduceSum(x), 1) }
	e := compile(t, d, []engine.Spec{{Name: "x", Shape: f32(2, 3, 2)}},
		func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			zero := []*graph.Node{graph.Scalar(g, in[0].DType(), 0)}
			outer := engine.Loop(g, 2, in, zero,
				func(i *graph.Node, fixed, state []*graph.Node) []*graph.Node {
					matrix := graph.Reshape(graph.Gather(fixed[0], graph.Reshape(i, 1)), 3, 2)
					inner := engine.Loop(g, 3, []*graph.Node{matrix}, []*graph.Node{graph.ZerosLike(state[0])},
						func(j *graph.Node, fixed, state []*graph.Node) []*graph.Node {
							row := graph.Reshape(graph.Gather(fixed[0], graph.Reshape(j, 1)), 2)
							return []*graph.Node{graph.Add(state[0], graph.MulScalar(total(row), 2))}
						})
					return []*graph.Node{graph.Add(state[0], graph.Add(inner[0], total(matrix)))}
				})
			return []*graph.Node{outer[0], total(in[0])}
		})
	out := run(t, e, testdevice.Upload(t, d, []float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 2, 3,
		2))
	for i, want := range []float32{3*78 + 6*2 + 2, 79} {
		if got := testdevice.Download[float32](t, out[i])[0]; got != want {
			t.Errorf("output %d is %v, want %v", i, got, want)
		}
	}
}

// TestOnce checks that Once calls its function once for each key, and that Options.Warn is called.
func TestOnce(t *testing.T) {
	var heard []string
	d, err := engine.Open(device.CPU,
		engine.Options{Warn: func(message string, _ ...any) { heard = append(heard, message) }})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	type key int
	find := func() any {
		d.Warn("looking")
		return len(heard)
	}
	got := []any{d.Once(key(1), find), d.Once(key(1), find), d.Once(key(2), find), d.Once(1, find)}
	if !slices.Equal(got, []any{1, 1, 2, 3}) || len(heard) != 3 {
		t.Errorf("found %v with %d messages", got, len(heard))
	}
}

// TestBFloat16 compares products in each layout with float64 sums of products of rounded operands:
// operands are rounded, and sums are not.
func TestBFloat16(t *testing.T) {
	// large enough that the backend multiplies in blocks
	const batch, rows, inner, columns = 3, 33, 900, 260
	rng := rand.New(rand.NewPCG(1, 2))
	a, b := make([]float32, batch*rows*inner), make([]float32, batch*columns*inner)
	for _, values := range [][]float32{a, b} {
		for i := range values {
			// of one sign: a sum in bfloat16 would stop growing at 256
			values[i] = float32(1 + 0.1*rng.NormFloat64())
		}
	}
	d := testdevice.Open(t, engine.Options{Precision: device.BFloat16})
	x, y := testdevice.Upload(t, d, a, batch, rows, inner),
		testdevice.Upload(t, d, b, batch, columns, inner)
	e := compile(t, d, []engine.Spec{{Name: "a", Shape: x.Shape()}, {Name: "b", Shape: y.Shape()}},
		func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
			turned := graph.TransposeAllAxes(in[1], 0, 2, 1)
			left := graph.TransposeAllAxes(in[0], 0, 2, 1)
			return []*graph.Node{
				engine.DotGeneral(in[0], []int{2}, []int{0}, in[1], []int{2}, []int{0}),
				engine.DotGeneral(in[0], []int{2}, []int{0}, turned, []int{1}, []int{0}),
				engine.DotGeneral(left, []int{1}, []int{0}, turned, []int{1}, []int{0}),
				engine.ExactDot(in[0], []int{2}, []int{0}, in[1], []int{2}, []int{0}),
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
			if !(math.Abs(float64(got)-want[j]) <= 1e-5*want[j]) {
				t.Fatalf("product %d, element %d is %v, want %v", i, j, got, want[j])
			}
		}
	}
}

func inBFloat16(values []float32) []float32 {
	rounded := make([]float32, len(values))
	for i, x := range values {
		rounded[i] = shapes.ToBFloat(x).Float32()
	}
	return rounded
}

// TestPrecisionIsKnown checks the products in the build info. The CPU ignores TF32.
func TestPrecisionIsKnown(t *testing.T) {
	d, err := engine.Open(device.CPU, engine.Options{Precision: device.BFloat16, TF32: true})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	want, exact := "bfloat16", "float32/fused"
	switch tier, err := engine.ProductTier(); {
	case err != nil:
		t.Fatal(err)
	case tier.HasBFloat16(): // the instruction sums in another order
		want += "/" + tier.Name()
	case tier.IsPortable(): // the library multiplies float32
		exact = ""
	}
	if info := d.BuildInfo(); info.Products != want ||
		!strings.HasSuffix(info.String(), " products="+want) {
		t.Errorf("the build info is %s, want products=%s", info, want)
	}
	if info := testdevice.OpenCPU(t, engine.Options{}).BuildInfo(); info.Products != exact {
		t.Errorf("the build info in float32 is %s", info)
	}
	if info := testdevice.OpenCPU(t, engine.Options{Kernels: device.GraphKernels}).
		BuildInfo(); info.Products != "" || strings.Contains(info.String(), "products") {
		t.Errorf("the build info of a device with operations of the library is %s", info)
	}
}
