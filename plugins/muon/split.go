package main

import (
	"math"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/sdk"
)

// The values of the parameter split beside a number.
const (
	splitAuto = "auto"
	splitNone = "none"
)

// split is the number of blocks of rows of a matrix that are orthogonalized each by
// itself.
func split(t sdk.Tensor) (int, error) {
	rows, cols := t.Shape[0], t.Shape[1]
	switch text := t.Text("split"); text {
	case splitNone:
		return 1, nil
	case splitAuto:
		if rows == 3*cols && strings.HasSuffix(t.Name, "qkv") {
			return 3, nil
		}
		return 1, nil
	default:
		parts, err := strconv.Atoi(text)
		if err != nil || parts < 1 {
			return 0, sdk.Refuse("split = %q: use auto, none, or a number of blocks from 1", text)
		}
		if rows%parts != 0 {
			return 0, sdk.Refuse("split = %q: %d rows do not make %d equal blocks", text, rows, parts)
		}
		return parts, nil
	}
}

// factor scales the orthogonalized matrix of a part.
func factor(t sdk.Tensor, rows, cols int) float64 {
	if t.Text("variant") == variantOriginal {
		return math.Sqrt(max(1, float64(rows)/float64(cols)))
	}
	return t.Float("rms") * math.Sqrt(float64(max(rows, cols)))
}
