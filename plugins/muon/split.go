package main

import (
	"math"
	"slices"
	"strconv"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// The values of the parameter split, in addition to numbers.
const (
	splitAuto = "auto"
	splitNone = "none"
)

// split returns the number of rows of each part into which a weight is split, from the top down.
func split(t sdk.Tensor) (rows []int, err error) {
	all := t.Shape[0]
	switch text := t.Text("split"); text {
	case splitNone:
	case splitAuto:
		for _, p := range t.Parts {
			rows = append(rows, p.Rows)
		}
	default:
		parts, err := strconv.Atoi(text)
		if err != nil || parts < 1 {
			return nil, sdk.Refuse("split = %q: use auto, none, or a number of blocks from 1", text)
		}
		if all%parts != 0 {
			return nil, sdk.Refuse("split = %q: %d rows do not make %d equal blocks", text, all, parts)
		}
		return slices.Repeat([]int{all / parts}, parts), nil
	}
	if rows == nil {
		rows = []int{all}
	}
	return rows, nil
}

// orthogonalizeParts orthogonalizes each part of u separately; parts has their numbers of rows.
// Adjacent parts with the same number of rows are computed together, as a stack of matrices.
func orthogonalizeParts(u program.Value, parts []int, t sdk.Tensor) program.Value {
	cols := t.Shape[1]
	var done []program.Value
	for first := 0; len(parts) > 0; {
		rows, n := parts[0], 1
		for n < len(parts) && parts[n] == rows {
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
		first, parts = first+n*rows, parts[n:]
	}
	if len(done) == 1 {
		return done[0]
	}
	return done[0].Concatenate(0, done[1:]...)
}

// factor returns the factor by which the orthogonalized matrix of a part is multiplied.
func factor(t sdk.Tensor, rows, cols int) float64 {
	if t.Text("variant") == variantOriginal {
		return math.Sqrt(max(1, float64(rows)/float64(cols)))
	}
	return t.Float("rms") * math.Sqrt(float64(max(rows, cols)))
}
