package model

import (
	"math"
	"testing"
)

// weightedDocuments returns rows of two documents each, with weights.
func weightedDocuments(batch, context int) (tokens []int32) {
	for row := range batch {
		segments, weights := make([]int32, context+1), make([]int32, context+1)
		for i := range segments {
			segments[i] = int32(i / 5)
			weights[i] = int32(math.Float32bits(float32(i%3) / 2))
		}
		tokens = append(append(append(tokens, hashedTokens(row, context+1, 40)...), segments...),
			weights...)
	}
	return tokens
}

// TestLabels checks effective sample sizes.
func TestLabels(t *testing.T) {
	plain := newTransformer(tiny, Options{})
	if got := plain.Labels([][]int32{make([]int32, 3*9), make([]int32, 3*9)}, 8); got != 48 {
		t.Errorf("%v labels of two batches of 3 × 8 tokens", got)
	}
	documents := newTransformer(tiny, Options{Documents: true})
	// Of the weights of positions 1 to 8, three are ½, two 0 and three 1.
	got := documents.Labels([][]int32{weightedDocuments(3, 8)}, 8)
	if want := (3 * 4.5) * (3 * 4.5) / (3 * 3.75); !(math.Abs(got-want) <= 1e-12) {
		t.Errorf("%v labels with weights, want %v", got, want)
	}
	if got := documents.Labels([][]int32{make([]int32, 27)}, 8); got != 0 {
		t.Errorf("%v labels without weights", got)
	}
}
