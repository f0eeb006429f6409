package main

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/internal/golden"
	"github.com/cage-qat/cage/tools/plugintest"
)

// TestTernaryConstants compares both factors with the golden ones, and the error of
// the matched one with that which the golden file states. It is its own optimum.
func TestTernaryConstants(t *testing.T) {
	want := golden.Load(t, "testdata/quest.json").Top(t).Object("ternary")
	plugintest.Near(t, "official k", []float64{ternaryOfficial}, []float64{want.Float("official_k")}, 0)
	plugintest.Near(t, "matched k", []float64{ternaryMatched}, []float64{want.Float("exact_k")}, 1e-14)
	err := func(k float64) float64 { return gaussianError([]float64{-k, 0, k}) }
	plugintest.Near(t, "squared error", []float64{err(ternaryMatched)}, []float64{want.Float("mse")}, 1e-12)
	if best := minimize(err, 0.5, 3); math.Abs(best-ternaryMatched) > 1e-6 {
		t.Errorf("the minimum is at k = %.9f, the constant is %.9f", best, ternaryMatched)
	}
}

// TestTernary works out rows by the definition q = round(z/(kσ)) within ±1, of which
// the mask passes |z/(kσ) − q| ≤ ½.
func TestTernary(t *testing.T) {
	const d = 64
	x := plugintest.Normal(7, 4, d)
	for table, k := range map[string]float64{tableMatched: ternaryMatched, tableOfficial: ternaryOfficial} {
		var value, codes, mask []float64
		for i := range 4 {
			squares := 0.0
			for _, v := range x.Row(i).Data {
				squares += v * v
			}
			s := k * math.Sqrt(squares/d)
			for _, v := range x.Row(i).Data {
				q := min(max(math.RoundToEven(v/s), -1), 1)
				pass := 0.0
				if math.Abs(v/s-q) <= 0.5 {
					pass = 1
				}
				value, codes, mask = append(value, q*s), append(codes, q), append(mask, pass)
			}
		}
		plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
			q := m.Quantize(t, quest{}, map[string]any{"form": formTernary, "k_table": table, "rotation": rotateNone}, x)
			plugintest.Near(t, "value", q.Value, value, single)
			plugintest.Near(t, "codes", q.Codes, codes, 0)
			plugintest.Near(t, "mask", q.Mask, mask, 0)
		})
	}
}
