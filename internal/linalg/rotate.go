package linalg

import (
	"fmt"
	"math"
)

// Rotate multiplies each block of block elements of x, whose rows have length row, by the Hadamard
// matrix of that order in Sylvester's construction, scaled by 1/√block. Its elements are
// (−1)^popcount(i AND j)/√block, as in the program operation hadamard. The rotation is its own
// inverse.
func Rotate(x []float64, row, block int) error {
	if block < 1 || block&(block-1) != 0 || row%block != 0 {
		return fmt.Errorf("rotation block size is %d, want a power of two that divides %d",
			block, row)
	}
	scale := 1 / math.Sqrt(float64(block))
	for at := 0; at < len(x); at += block {
		z := x[at : at+block]
		for half := 1; half < block; half *= 2 {
			for i := 0; i < block; i += 2 * half {
				for j := i; j < i+half; j++ {
					z[j], z[j+half] = z[j]+z[j+half], z[j]-z[j+half]
				}
			}
		}
		for i := range z {
			z[i] *= scale
		}
	}
	return nil
}
