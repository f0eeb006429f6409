package engine_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/host/testing/testdevice"
)

// TestProducts checks that products, with axes in any order, agree with the library's products of
// rounded operands with sums in float32, and that operands may be stored in bfloat16.
func TestProducts(t *testing.T) {
	t.Run("bfloat16", func(t *testing.T) {
		testProducts(t, engine.Options{Precision: device.BFloat16})
	})
	t.Run("float32", func(t *testing.T) { testProducts(t, engine.Options{}) })
}

func testProducts(t *testing.T, o engine.Options) {
	d := testdevice.OpenCPU(t, o)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		a, b                                       []int
		aContracted, aBatch, bContracted, bBatches []int
	}{
		{[]int{5, 7}, []int{3, 7}, []int{1}, nil, []int{1}, nil},
		{[]int{64, 96}, []int{64, 33}, []int{0}, nil, []int{0}, nil},
		{[]int{2, 40, 3, 16}, []int{2, 50, 3, 16}, []int{3}, []int{0, 2}, []int{3}, []int{0, 2}},
		{[]int{2, 3, 40, 4, 9}, []int{2, 9, 3, 16}, []int{4}, []int{0, 1}, []int{1}, []int{0, 2}},
		{[]int{2, 3, 40, 4, 9}, []int{2, 40, 3, 4, 6}, []int{2, 3}, []int{0, 1}, []int{1, 3},
			[]int{0, 2}},
		{[]int{6}, []int{6}, []int{0}, nil, []int{0}, nil},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			input := func(name string, dims []int) engine.Input {
				in := engine.Input{Spec: engine.Spec{Name: name, Shape: shapes.Make(shapes.Float32, dims...)}}
				for range in.Shape.Size() {
					in.Data = append(in.Data, float32(rng.NormFloat64()))
				}
				return in
			}
			short := func(x *graph.Node) *graph.Node {
				return graph.ConvertDType(graph.ConvertDType(x, shapes.BFloat16), shapes.Float32)
			}
			rounded := func(x *graph.Node) *graph.Node {
				if o.Precision != device.BFloat16 {
					return x
				}
				return short(x)
			}
			dot := func(a, b *graph.Node, f func(*graph.Node, []int, []int, *graph.Node, []int,
				[]int) *graph.Node) *graph.Node {
				return f(a, c.aContracted, c.aBatch, b, c.bContracted, c.bBatches)
			}
			out, err := d.Evaluate("products", []engine.Input{input("a", c.a), input("b", c.b)},
				func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
					a, b := in[0], in[1]
					return []*graph.Node{
						dot(rounded(a), rounded(b), engine.ExactDot),
						dot(a, b, engine.DotGeneral),
						dot(short(a), b, engine.DotGeneral),
						dot(a, b, engine.DotGeneralRounded),
						dot(rounded(graph.Abs(a)), rounded(graph.Abs(b)), engine.ExactDot),
						dot(graph.Mul(short(a), graph.OnesLike(a)), b, engine.DotGeneral),
					}
				})
			if err != nil {
				t.Fatal(err)
			}
			want, got, magnitudes := out[0], out[1], out[4]
			if !slices.Equal(out[2], out[5]) {
				t.Error("an operand that is stored in bfloat16 makes a difference")
			}
			summands := 1
			for _, axis := range c.aContracted {
				summands *= c.a[axis]
			}
			for i := range want {
				// Both implementations round partial sums, which never exceed the sum of magnitudes.
				most := float64(summands) * 0x1p-23 * float64(magnitudes[i])
				if diff := math.Abs(float64(got[i]) - float64(want[i])); !(diff <= most) {
					t.Fatalf("element %d is %v, want %v within %.2g", i, got[i], want[i], most)
				}
				bits := math.Float32bits(got[i])
				if o.Precision == device.BFloat16 {
					bits = (bits + 0x7fff + bits>>16&1) &^ 0xffff
				}
				if math.Float32bits(out[3][i]) != bits {
					t.Fatalf("element %d, %v, is rounded to %v", i, got[i], out[3][i])
				}
			}
		})
	}
}

// TestIntegersAreExact checks that products of codes have the bits of exact sums, multiplied first
// by the scale of the row and then by that of the column.
func TestIntegersAreExact(t *testing.T) {
	d := testdevice.OpenCPU(t, engine.Options{Products: device.IntegerProducts})
	rng := rand.New(rand.NewPCG(3, 4))
	const m, n, k = 37, 29, 501
	for _, largest := range []int{7, 15, 127} {
		input := func(name string, draw func() float64, dims ...int) engine.Input {
			in := engine.Input{Spec: engine.Spec{Name: name, Shape: shapes.Make(shapes.Float32, dims...)}}
			for range in.Shape.Size() {
				in.Data = append(in.Data, float32(draw()))
			}
			return in
		}
		code := func() float64 { return float64(rng.IntN(2*largest+1) - largest) }
		in := []engine.Input{input("a", code, m, k), input("b", code, n, k),
			input("rows", rng.NormFloat64, m, 1), input("columns", rng.NormFloat64, n, 1)}
		out, err := d.Evaluate("integers", in, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
			a, b := graph.ConvertDType(in[0], shapes.Int8), graph.ConvertDType(in[1], shapes.Int8)
			return []*graph.Node{engine.DotIntegers(a, b, in[2], in[3], false),
				engine.DotIntegers(a, b, in[2], nil, false)}
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := range m {
			for j := range n {
				sum := 0
				for l := range k {
					sum += int(in[0].Data[i*k+l]) * int(in[1].Data[j*k+l])
				}
				half := float32(sum) * in[2].Data[i]
				if got, want := out[0][i*n+j], half*in[3].Data[j]; got != want || out[1][i*n+j] != half {
					t.Fatalf("codes up to %d: element %d, %d is %v, want %v", largest, i, j, got, want)
				}
			}
		}
	}
}
