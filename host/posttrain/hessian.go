package posttrain

import (
	"fmt"

	"github.com/cage-qat/cage/internal/linalg"
)

// Hessian is that of the squared error of a linear layer's outputs in each row of its weight: 2/Samples·XᵀX for the
// inputs X, [Samples, Size].
type Hessian struct {
	Size    int
	Samples int64
	Data    []float64 // [Size, Size]
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

// OutputError is ‖X·dᵀ‖² summed over all samples, for a difference d of two weights of the layer, [rows, Size].
func (h *Hessian) OutputError(d []float64) float64 {
	rows := len(d) / h.Size
	sums := make([]float64, (rows+strip-1)/strip)
	strips(0, rows, func(low, high int) {
		part := d[low*h.Size : high*h.Size]
		product := make([]float64, len(part))
		linalg.MulAdd(linalg.RowMajor(product, high-low, h.Size), 1, linalg.RowMajor(part, high-low, h.Size), linalg.RowMajor(h.Data, h.Size, h.Size))
		for i, v := range part {
			sums[low/strip] += v * product[i]
		}
	})
	sum := 0.0
	for _, s := range sums {
		sum += s
	}
	return sum * float64(h.Samples) / 2
}

// Rotate replaces the matrix by RᵀHR, where R rotates each run of block elements: the Hessian of rotated inputs.
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
