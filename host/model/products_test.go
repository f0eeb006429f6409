package model

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/sdk/program"
)

// TestHessianProducts checks that the difference of the gradients at x + p·z and at x, divided by
// p, is nearly the product of the Hessian and z that PyTorch computes by differentiating twice. So
// an optimizer only needs a second gradient for such products. One part of the error is
// proportional to p, and another one, due to rounding, to 1/p.
func TestHessianProducts(t *testing.T) {
	data, err := os.ReadFile("testdata/torch_products.json")
	if err != nil {
		t.Fatal(err)
	}
	var reference struct {
		Parameters []struct{ Product []float64 }
	}
	if err := json.Unmarshal(data, &reference); err != nil {
		t.Fatal(err)
	}
	shape := readTorchGradients(t, "torch_llama3.json").Model
	config := architecture.Settings{Layers: shape.Layers, Heads: shape.Heads, KVHeads: shape.KeyHeads,
		Width: shape.Width, Hidden: shape.Hidden,
		Vocab: shape.Vocabulary, RopeTheta: shape.Theta, RopePairs: architecture.HalfSplit}
	shape.Scaling.setIn(&config)
	m := newLlama(config)
	tokens := hashedTokens(0, shape.Batch*(shape.Context+1), shape.Vocabulary)
	for _, tc := range []struct {
		precision device.Precision
		probe     float64
		most      float64 // relative error
	}{
		{device.Float32, 1e-2, 0.12}, {device.Float32, 1e-3, 0.012}, {device.Float32, 1e-4, 0.004},
		{device.Float32, 1e-5, 0.03},
		{device.BFloat16, 1e-1, 1}, {device.BFloat16, 1e-2, 0.3}, {device.BFloat16, 1e-3, 2},
	} {
		t.Run(fmt.Sprint(tc.precision, tc.probe), func(t *testing.T) {
			at := func(p float64) [][]float32 {
				weights := hashedWeights(m.Params())
				for i, w := range weights {
					for j := range w {
						w[j] += float32(p * (2*float64(mix(2000+i, j)>>63) - 1))
					}
				}
				return evaluateIn(t, tc.precision, m, weights, tokens, shape.Batch,
					func(params []program.Value, ids program.Value) []program.Value {
						_, gradients := lossAndGradients(m, params, ids)
						return gradients
					})
			}
			here, there := at(0), at(tc.probe)
			off, all := 0.0, 0.0
			for i, p := range reference.Parameters {
				for j, want := range p.Product {
					d := (float64(there[i][j])-float64(here[i][j]))/tc.probe - want
					off, all = off+d*d, all+want*want
				}
			}
			if e := math.Sqrt(off / all); !(e < tc.most) {
				t.Errorf("the relative error is %.2g", e)
			} else {
				t.Logf("the relative error is %.2g", e)
			}
		})
	}
}
