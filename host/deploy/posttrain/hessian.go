package posttrain

import "fmt"

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
