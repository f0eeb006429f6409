package attention

import (
	"fmt"

	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/compute/matmul"
)

// Heads are what one projection of the tokens holds: a matrix [batch·context, columns] of which some columns are heads of
// queries, the next those of keys, and so on.
type Heads struct {
	Batch, Context, Size int
	Parts                []Part // in the order of their columns, of which they use all
	Pairs                bool   // the coordinates of points are neighbours, and no halves of a head
}

// A Part is a number of heads. If it is turned, the elements of each head are coordinates of points, first ones in its first half and
// second ones in its second, or in pairs. Points turn with their position (Su et al., "RoFormer: Enhanced Transformer with Rotary
// Position Embedding", 2021).
type Part struct {
	Heads  int
	Turned bool
}

// Split copies each part to a tensor of its own, [batch, context, heads, size], turned by the angles whose cosines and sines
// are given, [context, size/2]. What is joined may be in bfloat16.
func (h *Heads) Split(parts [][]float32, joined matmul.Elements, cos, sin []float32, parallel func(n int, f func(i int))) error {
	return h.each(parts, joined, cos, sin, parallel, func(part, joined, cos, sin []float32) {
		if cos == nil {
			copy(part, joined)
			return
		}
		h.turn(part, joined, cos, sin, false)
	})
}

// Join is the adjoint of Split: it turns the parts back and joins them.
func (h *Heads) Join(joined []float32, parts [][]float32, cos, sin []float32, parallel func(n int, f func(i int))) error {
	return h.each(parts, matmul.Elements{Float32: joined}, cos, sin, parallel, func(part, joined, cos, sin []float32) {
		if cos == nil {
			copy(joined, part)
			return
		}
		h.turn(joined, part, cos, sin, true)
	})
}

func (h *Heads) turn(to, from, cos, sin []float32, back bool) {
	if h.Pairs {
		loops.TurnPairs(to, from, cos, sin, back)
		return
	}
	loops.Turn(to, from, cos, sin, back)
}

// each calls f with the heads of each token, in their part and in the matrix, and with their angles if they are turned.
func (h *Heads) each(parts [][]float32, joined matmul.Elements, cos, sin []float32, parallel func(n int, f func(i int)), f func(part, joined, cos, sin []float32)) error {
	tokens, columns := h.Batch*h.Context, 0
	if len(parts) != len(h.Parts) {
		return fmt.Errorf("%d parts of heads, want %d", len(parts), len(h.Parts))
	}
	for i, p := range h.Parts {
		columns += p.Heads * h.Size
		if len(parts[i]) != tokens*p.Heads*h.Size {
			return fmt.Errorf("%d heads of %d tokens and size %d: %d elements", p.Heads, tokens, h.Size, len(parts[i]))
		}
		if p.Turned && (h.Size%2 != 0 || len(cos) != h.Context*h.Size/2 || len(sin) != len(cos)) {
			return fmt.Errorf("turning heads of size %d at %d positions with %d cosines and %d sines", h.Size, h.Context, len(cos), len(sin))
		}
	}
	if n := len(joined.Float32) + len(joined.BFloat16); n != tokens*columns {
		return fmt.Errorf("a matrix of %d tokens and %d columns with %d elements", tokens, columns, n)
	}
	const run = 64 // tokens of a task
	parallel((tokens+run-1)/run, func(task int) {
		var row []float32
		if joined.BFloat16 != nil {
			row = make([]float32, columns)
		}
		for token := task * run; token < min(tokens, (task+1)*run); token++ {
			from, to := token*columns, (token+1)*columns
			row := row
			if joined.BFloat16 != nil {
				loops.FromBFloat16(row, joined.BFloat16[from:to])
			} else {
				row = joined.Float32[from:to]
			}
			for i, p := range h.Parts {
				width := p.Heads * h.Size
				part, at := parts[i][token*width:(token+1)*width], row[:width]
				row = row[width:]
				if !p.Turned {
					f(part, at, nil, nil)
					continue
				}
				angle := token % h.Context * h.Size / 2
				f(part, at, cos[angle:angle+h.Size/2], sin[angle:angle+h.Size/2])
			}
		}
	})
	return nil
}
