package loops

import (
	"fmt"
	"slices"
	"testing"
)

// TestTranspose: matrices of all sizes, within larger ones, of which nothing else is written.
func TestTranspose(t *testing.T) {
	for _, size := range [][2]int{{1, 1}, {8, 8}, {7, 9}, {9, 7}, {16, 40}, {64, 32}, {20, 13}, {0, 8}} {
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
