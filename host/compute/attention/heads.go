package attention

import (
	"fmt"

	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/compute/matmul"
)

// Heads describes the output of a fused projection of the tokens: a matrix [batch·context, columns]
// whose columns are the query heads, then the key heads, and so on.
type Heads struct {
	Batch, Context, Size int
	Parts                []Part // in the order of their columns, which they cover completely
	// Pairs selects the pairs that rotary embeddings rotate: adjacent elements if set, otherwise
	// elements i and size/2 + i of a head.
	Pairs bool
}

// A Part is a number of consecutive heads. If Rotated is set, they have rotary position embeddings
// (Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021).
type Part struct {
	Heads   int
	Rotated bool
}

// Split copies each part to a tensor of its own, [batch, context, heads, size], and rotates the
// Rotated ones by the angles with the given cosines and sines, [context, size/2]. Source and
// results may be in float32 or bfloat16; results in bfloat16 are rounded.
func (h *Heads) Split(parts []matmul.Elements, joined matmul.Elements, cos, sin []float32,
	parallel loops.Parallel) error {
	return h.copy(parts, joined, cos, sin, false, parallel)
}

// Join is the adjoint of Split: it rotates the parts back and joins them.
func (h *Heads) Join(joined matmul.Elements, parts []matmul.Elements, cos, sin []float32,
	parallel loops.Parallel) error {
	return h.copy(parts, joined, cos, sin, true, parallel)
}

// copy copies the heads of each token from the matrix to their part, or back if back is set, and
// rotates the heads of rotated parts.
func (h *Heads) copy(parts []matmul.Elements, joined matmul.Elements, cos, sin []float32, back bool,
	parallel loops.Parallel) error {
	tokens, columns := h.Batch*h.Context, h.Columns()
	if len(parts) != len(h.Parts) {
		return fmt.Errorf("got %d parts of heads, want %d", len(parts), len(h.Parts))
	}
	for i, p := range h.Parts {
		if parts[i].Len() != tokens*p.Heads*h.Size {
			return fmt.Errorf("got %d elements for %d heads of size %d and %d tokens", parts[i].Len(),
				p.Heads, h.Size, tokens)
		}
	}
	if err := h.check(joined, cos, sin); err != nil {
		return err
	}
	rotate := loops.Rope
	if h.Pairs {
		rotate = loops.RopeAdjacent
	}
	const run = 64 // tokens in a task
	loops.InParts(tokens, run, parallel, func(first, last int) {
		x32, y32 := make([]float32, columns), make([]float32, columns)
		for token := first; token < last; token++ {
			column := 0
			for i, p := range h.Parts {
				width := p.Heads * h.Size
				from, x := token*columns+column, joined
				to, y := token*width, parts[i]
				if column += width; back {
					from, x, to, y = to, y, from, x
				}
				values, results := x32[:width], y32[:width]
				if x.BFloat16 == nil {
					values = x.Float32[from : from+width]
				} else {
					loops.FromBFloat16(values, x.BFloat16[from:from+width])
				}
				if y.BFloat16 == nil {
					results = y.Float32[to : to+width]
				}
				if angle := token % h.Context * h.Size / 2; p.Rotated {
					end := angle + h.Size/2
					rotate(results, values, cos[angle:end], sin[angle:end], back)
				} else {
					copy(results, values)
				}
				if y.BFloat16 != nil {
					loops.ToBFloat16(y.BFloat16[to:to+width], results)
				}
			}
		}
	})
	return nil
}

// Columns returns the number of columns of the matrix.
func (h *Heads) Columns() (n int) {
	for _, p := range h.Parts {
		n += p.Heads * h.Size
	}
	return n
}

func (h *Heads) check(joined matmul.Elements, cos, sin []float32) error {
	for _, p := range h.Parts {
		if p.Rotated && (h.Size%2 != 0 || len(cos) != h.Context*h.Size/2 || len(sin) != len(cos)) {
			return fmt.Errorf("got %d cosines and %d sines to rotate heads of size %d at %d positions",
				len(cos), len(sin), h.Size, h.Context)
		}
	}
	if joined.Len() != h.Batch*h.Context*h.Columns() {
		return fmt.Errorf("got %d elements for a matrix of %d tokens and %d columns", joined.Len(),
			h.Batch*h.Context, h.Columns())
	}
	return nil
}
