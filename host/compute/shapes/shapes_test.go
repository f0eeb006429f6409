package shapes_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/cage-qat/cage/host/compute/shapes"
)

func ExampleShape() {
	s := shapes.Make(shapes.BFloat16, 2, 3)
	fmt.Println(s, s.Size(), s.ByteSize(), s.Dim(-1))
	fmt.Println(shapes.Make(shapes.Int32))
	// Output:
	// bfloat16[2,3] 6 12 3
	// int32
}

// TestTypes checks that each Go type of elements belongs to a type, with its size.
func TestTypes(t *testing.T) {
	for d, of := range map[shapes.DType]shapes.DType{
		shapes.Bool: shapes.Of[bool](), shapes.Int8: shapes.Of[int8](),
		shapes.Uint8: shapes.Of[uint8](), shapes.Int32: shapes.Of[int32](),
		shapes.Uint32: shapes.Of[uint32](), shapes.Float16: shapes.Of[shapes.Half](),
		shapes.BFloat16: shapes.Of[shapes.BFloat](), shapes.Float32: shapes.Of[float32](),
		shapes.Float64: shapes.Of[float64](),
	} {
		if d != of || d.GoType().Size() != uintptr(d.Size()) || d.MLIR() == "" {
			t.Errorf("%s is the type %s, of %d bytes", d, of, d.Size())
		}
	}
	if !shapes.Float16.IsFloat() || shapes.Uint32.IsFloat() {
		t.Error("which types are floats")
	}
}

// TestBFloat checks that numbers are rounded to even, and come back.
func TestBFloat(t *testing.T) {
	for v, want := range map[float32]float32{1: 1, 1 + 1.0/256: 1, 1 + 3.0/256: 1 + 1.0/64,
		float32(math.Inf(-1)): float32(math.Inf(-1))} {
		if got := shapes.ToBFloat(v).Float32(); got != want {
			t.Errorf("%v becomes %v, want %v", v, got, want)
		}
	}
}
