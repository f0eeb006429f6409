package assembly

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/host/model"
)

// TestNormalization: by the weights of a step's targets, the mean of all its losses is that of the targets, or the mean
// of the means of the micro-batches that have targets; a step without any has none, and no NaN.
func TestNormalization(t *testing.T) {
	const context = 4
	masks := map[string][][]float32{
		"different":     {{1, 1, 0, 1}, {0, 0, 1, 0}},
		"one has none":  {{1, 0, 0, 1}, {0, 0, 0, 0}, {1, 1, 1, 1}},
		"only one":      {{0, 0, 0, 0}, {0, 1, 0, 0}},
		"alone":         {{0, 1, 1, 0}},
		"none has some": {{0, 0, 0, 0}, {0, 0, 0, 0}},
	}
	loss := func(batch, place int) float64 { return float64(1 + 3*batch + place*place) }
	for name, batches := range masks {
		for _, each := range []bool{false, true} {
			var step [][]int32
			sum, count, means, used := 0.0, 0.0, 0.0, 0.0
			for b, mask := range batches {
				batch := make([]int32, model.Planes*(context+1))
				row := model.DocumentRows(batch, context)[0]
				own, targets := 0.0, 0.0
				for place, weight := range mask {
					row.SetWeight(place+1, weight)
					own, targets = own+float64(weight)*loss(b, place), targets+float64(weight)
				}
				if step = append(step, batch); targets > 0 {
					sum, count, means, used = sum+own, count+targets, means+own/targets, used+1
				}
			}
			want := 0.0
			if each && used > 0 {
				want = means / used
			} else if count > 0 {
				want = sum / count
			}
			if got := (normalization{context, each}).Finish(step); got != int64(count) {
				t.Errorf("%s: %d targets, want %v", name, got, count)
			}
			mean := 0.0 // as a step computes it: over all losses of all micro-batches
			for b, batch := range step {
				for place := range context {
					mean += float64(model.DocumentRows(batch, context)[0].Weight(place+1)) * loss(b, place) / float64(context*len(step))
				}
			}
			if !(math.Abs(mean-want) <= 1e-6*want) {
				t.Errorf("%s, each %v: the mean is %v, want %v", name, each, mean, want)
			}
		}
	}
}
