package dataset

import "math"

// Planes is the number of values per position in a batch of documents: token, segment and weight.
const Planes = 3

// Padding is the segment number of positions without a document.
const Padding = -1

// A Row is one row of a batch of documents, [batch, 3, context+1]: tokens, segments and weights of
// each row. Its slices share the batch's memory.
type Row struct {
	Tokens []int32 // context+1 ids; any valid ids in padding
	// number of the document at each position, ascending from 0, or Padding, after all documents
	Segments []int32
	weights  []int32 // bits of float32 numbers
}

// RowsOf returns the rows of a batch.
func RowsOf(batch []int32, context int) []Row {
	length := context + 1
	var rows []Row
	for ; len(batch) >= Planes*length; batch = batch[Planes*length:] {
		tokens, segments, weights := batch[:length], batch[length:2*length], batch[2*length:3*length]
		rows = append(rows, Row{tokens, segments, weights})
	}
	return rows
}

// Weight returns the weight of the loss of predicting the token at a position. The first position
// with a weight is 1.
func (r Row) Weight(position int) float32 {
	return math.Float32frombits(uint32(r.weights[position]))
}

// SetWeight sets the weight that [Row.Weight] returns. That of position 0, which is never
// predicted, must stay 0.
func (r Row) SetWeight(position int, weight float32) {
	r.weights[position] = int32(math.Float32bits(weight))
}

// TotalWeight sums the weights of a batch.
func TotalWeight(batch []int32, context int) float64 {
	sum := 0.0
	for _, r := range RowsOf(batch, context) {
		for position := 1; position <= context; position++ {
			sum += float64(r.Weight(position))
		}
	}
	return sum
}

// NormalizeWeights scales the weights of batches so that the mean of all their losses is the
// weighted mean. It returns false if all weights are zero.
func NormalizeWeights(batches [][]int32, context int) bool {
	total, losses := 0.0, 0
	for _, b := range batches {
		total += TotalWeight(b, context)
		losses += len(b) / (Planes * (context + 1)) * context
	}
	if total == 0 {
		return false
	}
	for _, b := range batches {
		ScaleWeights(b, context, float64(losses)/total)
	}
	return true
}

// ScaleWeights multiplies the weights of a batch by a factor.
func ScaleWeights(batch []int32, context int, factor float64) {
	for _, r := range RowsOf(batch, context) {
		for position := 1; position <= context; position++ {
			r.SetWeight(position, float32(float64(r.Weight(position))*factor))
		}
	}
}
