package huggingface

import (
	"github.com/cage-qat/cage/host/model/architecture"
)

// Rotary positions turn pairs of features of a head. The hub keeps them in the two halves of the head. Weights
// become those of another order when the rows that make these features change places.

// interleave brings the rows of heads of the given size, width elements each, from halves to interleaved pairs.
func interleave(rows []float32, size, width int) {
	before := make([]float32, size*width)
	for head := rows; len(head) > 0; head = head[len(before):] {
		copy(before, head)
		for i := range size {
			from := architecture.Feature(i, size, architecture.HalfSplit, architecture.Interleaved)
			copy(head[i*width:(i+1)*width], before[from*width:])
		}
	}
}
