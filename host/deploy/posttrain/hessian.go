package posttrain

import (
	"fmt"
	"math"
)

// Hessian is the Hessian matrix of the squared error of a linear layer's outputs with respect to each row of its
// weight: 2/n·XᵀX for n inputs X, [n, Size].
type Hessian struct {
	Size int
	Data []float64 // [Size, Size]
}

// check refuses a matrix of another size and numbers that are not finite.
func (h *Hessian) check(columns int) error {
	if h.Size != columns || len(h.Data) != columns*columns {
		return fmt.Errorf("inputs of %d features for a matrix of %d columns", h.Size, columns)
	}
	for _, v := range h.Data {
		if v-v != 0 {
			return fmt.Errorf("the inputs of the layer are NaN or infinite")
		}
	}
	return nil
}

// Rotate replaces the matrix by RᵀHR, where R rotates each block of block elements: the result is the Hessian for
// rotated inputs.
func (h *Hessian) Rotate(block int) error {
	if block == 1 {
		return nil
	}
	if err := Rotate(h.Data, h.Size, block); err != nil {
		return err
	}
	transpose(h.Data, h.Size)
	return Rotate(h.Data, h.Size, block)
}

func transpose(m []float64, n int) {
	for i := range n {
		for j := range i {
			m[i*n+j], m[j*n+i] = m[j*n+i], m[i*n+j]
		}
	}
}

// Rotate multiplies each block of block elements of x, whose rows have the given length, by the Hadamard matrix of that
// order in Sylvester's construction, divided by √block: (−1)^popcount(i AND j)/√block, as the program operation
// hadamard does. The rotation is its own inverse.
func Rotate(x []float64, row, block int) error {
	if block < 1 || block&(block-1) != 0 || row%block != 0 {
		return fmt.Errorf("a rotation of blocks of %d in rows of %d: want a power of two that divides the row", block, row)
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
