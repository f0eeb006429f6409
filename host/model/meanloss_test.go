package model

import (
	"fmt"
	"math"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/sdk/program"
)

// TestLoss checks that the loss that is computed with its gradients is the mean of the losses, also
// for documents with weights: only the order of sums differs.
func TestLoss(t *testing.T) {
	for _, documents := range []bool{false, true} {
		m, err := New(architecture.Settings{Kind: architecture.KindLlama, Layers: 2, Width: 16, Heads: 2,
			Vocab: 40}, Options{Documents: documents, LossTokens: 8})
		if err != nil {
			t.Fatal(err)
		}
		const batch, context = 3, 8
		tokens := hashedTokens(0, batch*(context+1), 40)
		if documents {
			tokens = nil
			for row := range batch {
				ids := hashedTokens(row, context+1, 40)
				segments, weights := make([]int32, context+1), make([]int32, context+1)
				for i := range segments {
					segments[i] = int32(i / 5)
					weights[i] = int32(math.Float32bits(float32(i%3) / 2))
				}
				tokens = append(append(append(tokens, ids...), segments...), weights...)
			}
		}
		for _, precision := range []device.Precision{device.Float32, device.BFloat16} {
			t.Run(fmt.Sprint(precision, documents), func(t *testing.T) {
				out := evaluateIn(t, precision, m, hashedWeights(m.Params()), tokens, batch,
					func(params []program.Value, ids program.Value) []program.Value {
						ids = ids.Reshape(m.BatchDims(batch, context)...)
						loss, _ := lossAndGradients(m, params, ids)
						return []program.Value{loss, mean(lossesIn(m, params, ids))}
					})
				got, want := out[:1], out[1:]
				if !(want[0][0] > 0.1) {
					t.Fatalf("the loss is %g", want[0][0])
				}
				for i := range want {
					if d := engine.Distance(got[i], want[i]); !(d < 1e-6) {
						t.Errorf("output %d: the relative difference is %.2g", i, d)
					}
				}
			})
		}
	}
}

// TestLossOfWrongIDs checks that an id outside the vocabulary makes the loss NaN.
func TestLossOfWrongIDs(t *testing.T) {
	m := newLlama(tiny)
	tokens := hashedTokens(0, 10, tiny.Vocab)
	tokens[4] = int32(tiny.Vocab)
	out := evaluateIn(t, device.BFloat16, m, initial(m, 1), tokens, 2,
		func(params []program.Value, ids program.Value) []program.Value {
			loss, _ := lossAndGradients(m, params, ids)
			return []program.Value{loss}
		})
	if loss := out[0][0]; loss == loss {
		t.Errorf("the loss is %v, want NaN", loss)
	}
}
