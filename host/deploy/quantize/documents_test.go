package quantize_test

import (
	"math"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/deploy/posttrain"
	"github.com/cage-qat/cage/host/deploy/quantize"
	"github.com/cage-qat/cage/host/model/architecture"
)

// TestDocumentsApart checks that documents in a common sequence, with or without padding, give the
// same errors of layers as documents alone: none attends to another, and padding does not count.
func TestDocumentsApart(t *testing.T) {
	const documents, size = 8, length / 2
	var packed, apart, alone, padded [][]int32
	for i, tokens := range sequences(documents / 2) {
		packed = append(packed, tokens)
		apart = append(apart,
			slices.Concat(slices.Repeat([]int32{0}, size), slices.Repeat([]int32{1}, size)))
		for _, d := range [][]int32{tokens[:size], tokens[size:]} {
			padding := slices.Repeat([]int32{int32(i)}, length-size) // arbitrary ids
			alone = append(alone, slices.Concat(d, padding))
			padded = append(padded,
				slices.Concat(slices.Repeat([]int32{0}, size),
					slices.Repeat([]int32{dataset.Padding}, length-size)))
		}
	}
	m, values := small(t, architecture.KindLlama, 2, 32)
	errorsOf := func(sequences, segments [][]int32) map[string]posttrain.Matrix {
		out := map[string]posttrain.Matrix{}
		r := quantize.Blocks{Settings: posttrain.Settings{Method: posttrain.RTN}, Device: cpu(t),
			Model: m, Weights: programs(t, m, rounding{}), Values: values,
			Sequences: sequences, Segments: segments, Batch: batch, Context: length,
			Block: func(_ int, list []*quantize.Quantized) error {
				for _, w := range list {
					out[w.Report.Name] = w.Report
				}
				return nil
			}}
		if err := r.Do(t.Context()); err != nil {
			t.Fatal(err)
		}
		return out
	}
	want, got, mixed := errorsOf(alone, padded), errorsOf(packed, apart), errorsOf(packed, nil)
	differ := 0
	for name, w := range want {
		off := func(r posttrain.Matrix) float64 {
			return math.Abs(r.OutputError-w.OutputError) / w.OutputError
		}
		if !(off(got[name]) < 1e-5) {
			t.Errorf("%s: the error is %v, of the documents alone %v", name, got[name].OutputError,
				w.OutputError)
		}
		if off(mixed[name]) > 1e-3 {
			differ++
		}
	}
	if differ < 7 { // the inputs of the first block's attention are the same
		t.Errorf("%d of %d matrices have other errors where documents see each other", differ, len(want))
	}
}
