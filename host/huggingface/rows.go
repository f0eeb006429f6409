package huggingface

// Rotary positions turn pairs of features of a head. The hub keeps them in the two halves of the head,
// features i and h/2 + i of h; a model with interleaved pairs has them as features 2i and 2i + 1. Weights of
// one order become those of the other when the rows that make these features change places.

// interleave brings the rows of heads of the given size, width elements each, from halves to interleaved pairs.
func interleave(rows []float32, size, width int) {
	reorder(rows, size, width, func(i int) int { return i%2*(size/2) + i/2 })
}

// halve is the inverse of interleave.
func halve(rows []float32, size, width int) {
	reorder(rows, size, width, func(i int) int { return halfFrom(i, size) })
}

// reorder puts in the place of row i of each head the row from(i).
func reorder(rows []float32, size, width int, from func(i int) int) {
	before := make([]float32, size*width)
	for head := rows; len(head) > 0; head = head[len(before):] {
		copy(before, head)
		for i := range size {
			copy(head[i*width:(i+1)*width], before[from(i)*width:])
		}
	}
}

// halved is the order in which halve brings a list of rows.
func halved(rows []int, size int) []int {
	out := make([]int, len(rows))
	for i := range rows {
		out[i] = rows[i/size*size+halfFrom(i%size, size)]
	}
	return out
}

// halfFrom is the feature of interleaved pairs that becomes feature i of the halves.
func halfFrom(i, size int) int { return i%(size/2)*2 + i/(size/2) }
