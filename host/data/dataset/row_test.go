package dataset

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// TestNormalizeWeights checks that the mean of all losses of a step is the weighted mean, however
// the weights are distributed over its micro-batches.
func TestNormalizeWeights(t *testing.T) {
	const context = 4
	var batches [][]int32
	sum, total, losses := 0.0, 0.0, 0.0
	rng := rand.New(rand.NewPCG(5, 6))
	loss := func(batch, row, place int) float64 { return float64(1 + batch*7 + row*3 + place) }
	for i := range 3 {
		b := make([]int32, 2*Planes*(context+1))
		for j, r := range RowsOf(b, context) {
			for place := 1; place <= context; place++ {
				w := float32(rng.IntN(2 + i))
				r.SetWeight(place, w)
				sum, total = sum+float64(w)*loss(i, j, place), total+float64(w)
				losses++
			}
		}
		batches = append(batches, b)
	}
	if !NormalizeWeights(batches, context) {
		t.Fatal("all weights are zero")
	}
	mean := 0.0
	for i, b := range batches {
		for j, r := range RowsOf(b, context) {
			for place := 1; place <= context; place++ {
				mean += float64(r.Weight(place)) * loss(i, j, place) / losses
			}
		}
	}
	if want := sum / total; math.Abs(mean-want) > 1e-6*want {
		t.Errorf("the mean of weighted losses is %v, want %v", mean, want)
	}
	if NormalizeWeights([][]int32{make([]int32, Planes*(context+1))}, context) {
		t.Error("weights that are all zero were normalized")
	}
}

func ExampleRowsOf() {
	const context = 3
	batch := make([]int32, 3*(context+1)) // one row
	row := RowsOf(batch, context)[0]
	copy(row.Tokens, []int32{5, 6, 7, 8})
	copy(row.Segments, []int32{0, 0, 1, 1}) // two documents of two tokens
	row.SetWeight(1, 1)
	row.SetWeight(3, 0.5)
	fmt.Println(TotalWeight(batch, context), NormalizeWeights([][]int32{batch}, context),
		row.Weight(1), row.Weight(3))
	// Output: 1.5 true 2 1
}
