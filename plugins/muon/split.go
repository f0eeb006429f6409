package main

import (
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// orthogonalizeParts orthogonalizes each matrix that u holds separately. Adjacent matrices with the
// same number of rows are computed together, as a stack.
func orthogonalizeParts(u program.Value, t sdk.Tensor) program.Value {
	cols, parts := t.Shape[1], t.Parts
	if parts == nil {
		parts = []sdk.Part{{Rows: t.Shape[0]}}
	}
	var done []program.Value
	for len(parts) > 0 {
		first, rows, n := parts[0].First, parts[0].Rows, 1
		for n < len(parts) && parts[n].Rows == rows {
			n++
		}
		x := u
		if n*rows < t.Shape[0] {
			x = u.Slice([]int{first, 0}, []int{first + n*rows, cols}, []int{1, 1})
		}
		if n > 1 {
			x = x.Reshape(n, rows, cols)
		}
		it := iteration{steps: t.Int("ns_steps"), eps: t.Float("eps"),
			a: t.Float("ns_a"), b: t.Float("ns_b"), c: t.Float("ns_c"), factor: factor(t, rows, cols)}
		done = append(done, newtonSchulz(x, it).Reshape(n*rows, cols))
		parts = parts[n:]
	}
	if len(done) == 1 {
		return done[0]
	}
	return done[0].Concatenate(0, done[1:]...)
}

// factor returns the factor that multiplies the orthogonalized matrix of a part.
func factor(t sdk.Tensor, rows, cols int) float64 {
	if t.Text("variant") == variantOriginal {
		return math.Sqrt(max(1, float64(rows)/float64(cols)))
	}
	return t.Float("rms") * math.Sqrt(float64(max(rows, cols)))
}
