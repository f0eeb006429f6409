package lower_test

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// TestSortColumns: columns are moved, bit for bit, whatever they and their keys are.
func TestSortColumns(t *testing.T) {
	special := []float64{0, math.Copysign(0, -1), math.NaN(), 1, math.Inf(-1), 1, math.Inf(1), math.NaN(), -2, 1e-30, 0}
	for _, shape := range [][]int{{1, 1}, {3, 2}, {5, 11}, {1, 64}, {2, 3, 7, 13}, {4, 1, 1}} {
		last := len(shape) - 1
		x, keys := normal(1, shape...), reference.Tensor{Type: program.FloatType(append(append([]int{}, shape[:last-1]...), shape[last])...)}
		for i := range int(keys.Type.Size()) {
			keys.Floats = append(keys.Floats, special[i*i%len(special)])
		}
		for i := range x.Floats {
			x.Floats[i] = float64(float32(x.Floats[i]))
			if i%7 == 3 {
				x.Floats[i] = special[i%len(special)]
			}
		}
		p := build(t, func(b *program.Builder) {
			x, keys := b.Input("x", x.Type), b.Input("keys", keys.Type)
			b.Output("special", x.SortColumns(keys))
			b.Output("itself", x.SortColumns(x.ReduceMin(last-1)))
		})
		check(t, tolerance{}, p, map[string]reference.Tensor{"x": x, "keys": keys})
	}
}
