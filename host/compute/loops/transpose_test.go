package loops

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestTranspose checks matrices within larger ones, and that nothing else is written.
func TestTranspose(t *testing.T) {
	for _, size := range [][2]int{{1, 1}, {8, 8}, {7, 9}, {9, 7}, {16, 40}, {64, 32}, {20, 13},
		{0, 8}} {
		for _, factor := range []float32{0, 2} {
			t.Run(fmt.Sprint(size, factor), func(t *testing.T) {
				rows, columns := size[0], size[1]
				stride, dstStride := columns+3, rows+5
				src := make([]float32, rows*stride+8)
				for i := range src {
					src[i] = float32(i)
				}
				var factors []float32
				if factor != 0 {
					for j := range columns {
						factors = append(factors, factor+float32(j))
					}
				}
				got := slices.Repeat([]float32{-1}, columns*dstStride)
				want := slices.Clone(got)
				for i := range rows {
					for j := range columns {
						want[j*dstStride+i] = src[i*stride+j]
						if factors != nil {
							want[j*dstStride+i] *= factors[j]
						}
					}
				}
				Transpose(got, dstStride, src, stride, rows, columns, factors)
				if i := differs(got, want); i >= 0 {
					t.Errorf("element %d is %v, want %v", i, got[i], want[i])
				}
			})
		}
	}
}

// TestTurnOperand checks operands of both forms and several sizes. Words of two bfloat16 elements
// are not numbers and may have any bits.
func TestTurnOperand(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, size := range [][2]int{{1, 2}, {8, 8}, {16, 32}, {7, 10}, {9, 8}, {20, 14}, {8, 40},
		{0, 8}} {
		rows, columns := size[0], size[1]
		stride := columns + 3
		src := make([]float32, rows*stride+8)
		for i := range src {
			src[i] = math.Float32frombits(r.Uint32()&^0x7f80_0000 | uint32(r.IntN(2))*0x7f80_0000)
		}
		bits := func(x float32) uint32 { return math.Float32bits(x) }
		for _, form := range []Form{Paired, Rounded} {
			if form == Rounded { // numbers: the bits of NaN could change
				for i := range src {
					src[i] = float32(i)
				}
			}
			resultRows, resultColumns := columns, rows
			want := func(i, j int) uint32 { return bits(src[j*stride+i]) }
			if form == Paired {
				resultRows, resultColumns = columns/2, 2*rows
				half := func(row, column int) uint32 {
					return bits(src[row/2*stride+column]) >> (row % 2 * 16) & 0xffff
				}
				want = func(i, j int) uint32 { return half(j, 2*i) | half(j, 2*i+1)<<16 }
			}
			dstStride := resultColumns + 5
			got := slices.Repeat([]float32{-1}, resultRows*dstStride)
			form.Transpose(got, dstStride, src, stride, rows, columns)
			for i := range resultRows {
				for j := range dstStride {
					wanted := bits(-1)
					if j < resultColumns {
						wanted = want(i, j)
					}
					if bits(got[i*dstStride+j]) != wanted {
						t.Fatalf("form %v, %d·%d: word %d, %d is %#x, want %#x", form, rows, columns, i, j,
							bits(got[i*dstStride+j]), wanted)
					}
				}
			}
		}
	}
}
