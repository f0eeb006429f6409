package model

import "github.com/cage-qat/cage/host/data/dataset"

// Labels implements [Language].
func (m *transformer) Labels(batches [][]int32, context int) float64 {
	sum, squares := 0.0, 0.0
	for _, b := range batches {
		if !m.Documents {
			n := float64(len(b) / (context + 1) * context)
			sum, squares = sum+n, squares+n
			continue
		}
		for _, r := range dataset.RowsOf(b, context) {
			for position := 1; position <= context; position++ {
				w := float64(r.Weight(position))
				sum, squares = sum+w, squares+w*w
			}
		}
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / squares
}
