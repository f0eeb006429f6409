package attention

import (
	"fmt"

	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/compute/matmul"
)

// Heads describe the output of a fused projection of the tokens: a matrix [batch·context, columns]
// whose columns are heads of queries, then those of keys, and so on.
type Heads struct {
	Batch, Context, Size int
	Parts                []Part // in the order of their columns, which they cover completely
	// the coordinates of a point are adjacent, not in the two halves of a head
	Pairs bool
}

// A Part is a number of heads. If Turned, it has rotary embeddings: the elements of each head are
// coordinates of points, first ones in its first half and second ones in its second, or in pairs;
// points rotate with their position (Su et al., "RoFormer: Enhanced Transformer with Rotary
// Position Embedding", 2021).
type Part struct {
	Heads  int
	Turned bool
}

// Split copies each part to a tensor of its own, [batch, context, heads, size], rotated by the
// angles whose cosines and sines are given, [context, size/2]. Both sides may be in bfloat16, to
// which results are rounded.
func (h *Heads) Split(parts []matmul.Elements, joined matmul.Elements, cos, sin []float32,
	parallel loops.Parallel) error {
	return h.copy(parts, joined, cos, sin, false, parallel)
}

// Join is the adjoint of Split: it rotates the parts back and joins them.
func (h *Heads) Join(joined matmul.Elements, parts []matmul.Elements, cos, sin []float32,
	parallel loops.Parallel) error {
	return h.copy(parts, joined, cos, sin, true, parallel)
}

func (h *Heads) turnPiece(y, x, cos, sin []float32, back bool) {
	if h.Pairs {
		loops.TurnNeighbours(y, x, cos, sin, back)
	} else {
		loops.Turn(y, x, cos, sin, back)
	}
}

// numbers are heads of a token in memory. If they are in bfloat16, there is a float32 buffer for
// them.
type numbers struct {
	float, wide []float32
	short       []uint16
}

func (n *numbers) at(e matmul.Elements, from, to int, wide []float32) {
	if e.BFloat16 != nil {
		*n = numbers{short: e.BFloat16[from:to], wide: wide[:to-from]}
	} else {
		*n = numbers{float: e.Float32[from:to]}
	}
}

func (n *numbers) read() []float32 {
	if n.short == nil {
		return n.float
	}
	loops.FromBFloat16(n.wide, n.short)
	return n.wide
}

// buffer returns the float32 memory to write the numbers to; the caller then calls written.
func (n *numbers) buffer() []float32 {
	if n.short == nil {
		return n.float
	}
	return n.wide
}

func (n *numbers) written() {
	if n.short != nil {
		loops.ToBFloat16(n.short, n.wide)
	}
}

// copy copies the heads of each token from the matrix to their part or back, and rotates those of
// turned parts.
func (h *Heads) copy(parts []matmul.Elements, joined matmul.Elements, cos, sin []float32, back bool,
	parallel loops.Parallel) error {
	tokens, columns := h.Batch*h.Context, h.Columns()
	if len(parts) != len(h.Parts) {
		return fmt.Errorf("%d parts of heads, want %d", len(parts), len(h.Parts))
	}
	for i, p := range h.Parts {
		if parts[i].Len() != tokens*p.Heads*h.Size {
			return fmt.Errorf("%d heads of %d tokens and size %d: %d elements", p.Heads, tokens, h.Size,
				parts[i].Len())
		}
	}
	if err := h.check(joined, cos, sin); err != nil {
		return err
	}
	const run = 64 // tokens in a task
	parallel((tokens+run-1)/run, func(task int) {
		scratch := make([]float32, 2*columns)
		var part, row numbers
		for token := task * run; token < min(tokens, (task+1)*run); token++ {
			column := 0
			for i, p := range h.Parts {
				width := p.Heads * h.Size
				part.at(parts[i], token*width, (token+1)*width, scratch)
				row.at(joined, token*columns+column, token*columns+column+width, scratch[columns:])
				column += width
				to, from := &part, &row
				if back {
					to, from = from, to
				}
				x, y := from.read(), to.buffer()
				if angle := token % h.Context * h.Size / 2; p.Turned {
					h.turnPiece(y, x, cos[angle:angle+h.Size/2], sin[angle:angle+h.Size/2], back)
				} else {
					copy(y, x)
				}
				to.written()
			}
		}
	})
	return nil
}

// Columns returns the number of columns of the matrix.
func (h *Heads) Columns() int { return h.column(len(h.Parts)) }

func (h *Heads) column(part int) (n int) {
	for _, before := range h.Parts[:part] {
		n += before.Heads * h.Size
	}
	return n
}

func (h *Heads) check(joined matmul.Elements, cos, sin []float32) error {
	for _, p := range h.Parts {
		if p.Turned && (h.Size%2 != 0 || len(cos) != h.Context*h.Size/2 || len(sin) != len(cos)) {
			return fmt.Errorf("turning heads of size %d at %d positions with %d cosines and %d sines",
				h.Size, h.Context, len(cos), len(sin))
		}
	}
	if joined.Len() != h.Batch*h.Context*h.Columns() {
		return fmt.Errorf("a matrix of %d tokens and %d columns with %d elements", h.Batch*h.Context,
			h.Columns(), joined.Len())
	}
	return nil
}
