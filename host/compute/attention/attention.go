// Package attention computes causal attention on the CPU, forward and backward, in blocks. The
// weights of a block stay in the caches, and only one number for each query and head is kept for
// the backward pass, which recomputes the weights (Dao et al., "FlashAttention: Fast and
// Memory-Efficient Exact Attention with IO-Awareness", 2022). Keys after the last query of a block,
// nearly half of all keys, are skipped.
//
// Matrices are multiplied by package matmul, with operands in bfloat16 or float32, and sums in
// float32. A block of weights is as wide as a panel, so that the next product reads it without
// repacking. On processors that multiply pairs of bfloat16 elements, the exponential also joins
// pairs of the block's rows into words. Weights are rounded after they are summed.
//
// Results have the same bits for any number of threads. They have the same bits on all processors,
// too, except in bfloat16 on those that multiply pairs, which sum in another order, and in float32
// on those without vector kernels, where products are rounded before they are added. This package
// works on slices, independent of graphs and devices.
package attention

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/compute/matmul"
)

// Sizes are the dimensions of attention. A key-value head serves Heads/KeyHeads adjacent query
// heads.
type Sizes struct {
	Batch, Context  int
	Heads, KeyHeads int // KeyHeads divides Heads
	Size            int // of a head
	// Window is the number of tokens that a query attends to, itself included; 0: all before it.
	Window int
	Scale  float64 // factor of the products of queries and keys; 0: 1/√Size
	Cap    float64 // c: a score x becomes c·tanh(x/c); 0: it does not
}

// A Plan computes attention for fixed sizes. It is safe for concurrent use.
type Plan struct {
	Sizes
	scale  float32    // factor of the products of queries and keys
	limit  float64    // of products, before they are multiplied; 0: none
	form   loops.Form // of blocks that are operands of products
	panels *matmul.Panels
	// Blocks of weights and results are as wide as right panels; height is the number of rows of
	// left panels.
	width, height   int
	padded          int // elements of a head, padded to whole panels
	queries, keys   operands
	forwardScratch  sync.Pool
	backwardScratch sync.Pool
}

// operands holds the packings for the operands that products read from one head of a tensor.
type operands struct {
	rows    *matmul.Packing // positions as rows of a left operand
	columns *matmul.Packing // positions as columns of a right operand
	across  *matmul.Packing // elements of a head as rows of a left operand, contracted over positions
}

// New plans attention with products in the given arithmetic, [matmul.BFloat16] or [matmul.Float32].
// Any size of 0 is an error.
func New(t *matmul.Tier, a matmul.Arithmetic, s Sizes) (*Plan, error) {
	if s.Batch < 1 || s.Context < 1 || s.KeyHeads < 1 || s.Heads < 1 || s.Size < 1 ||
		s.Heads%s.KeyHeads != 0 || s.Window < 0 {
		const format = "attention of sizes %+v: numbers of heads and tokens must be positive, and " +
			"heads a multiple of key heads"
		return nil, fmt.Errorf(format, s)
	}
	panels, err := matmul.NewPanels(t, a)
	if err != nil {
		return nil, fmt.Errorf("attention in %v: %w", a, err)
	}
	scale := cmp.Or(s.Scale, 1/math.Sqrt(float64(s.Size)))
	p := &Plan{
		Sizes: s, scale: float32(scale), limit: s.Cap / scale,
		panels: panels, width: panels.Columns(), height: panels.Rows(),
	}
	switch {
	case panels.Pairs():
		p.form = loops.Paired
	case a == matmul.BFloat16:
		p.form = loops.Rounded
	}
	p.padded = roundUp(s.Size, p.height)
	for _, o := range []struct {
		*operands
		heads int
	}{{&p.queries, s.Heads}, {&p.keys, s.KeyHeads}} {
		positions, elements := matmul.Axis{Size: s.Context, Stride: o.heads * s.Size},
			matmul.Axis{Size: s.Size, Stride: 1}
		for _, packing := range []struct {
			to                **matmul.Packing
			make              func(cross, contracted matmul.Axis) (*matmul.Packing, error)
			cross, contracted matmul.Axis
		}{
			{&o.rows, panels.Left, positions, elements},
			{&o.columns, panels.Right, positions, elements},
			{&o.across, panels.Left, elements, positions},
		} {
			if *packing.to, err = packing.make(packing.cross, packing.contracted); err != nil {
				return nil, fmt.Errorf("attention of sizes %+v: %w", s, err)
			}
		}
	}
	p.forwardScratch.New = func() any {
		return &forward{
			Multiplier: p.panels.Multiplier(),
			keys:       make([]float32, p.keys.rows.Size(p.Context, p.Size)),
			values:     make([]float32, p.keys.across.Size(p.Size, p.Context)),
			query:      make([]float32, p.queries.columns.Size(p.width, p.Size)),
			weights:    make([]float32, roundUp(p.Context, p.height)*p.width),
			result:     make([]float32, p.padded*p.width),
			largest:    make([]float32, p.width),
			sums:       make([]float32, p.width),
			rows:       p.newRows(),
		}
	}
	p.backwardScratch.New = func() any {
		block := p.block()
		return &backward{
			Multiplier:    p.panels.Multiplier(),
			keyColumns:    make([]float32, p.keys.columns.Size(p.Context, p.Size)),
			valueColumns:  make([]float32, p.keys.columns.Size(p.Context, p.Size)),
			keysAcross:    make([]float32, p.keys.across.Size(p.Size, p.Context)),
			dKey:          make([]float32, roundUp(p.Context, p.width)*p.padded),
			dValue:        make([]float32, roundUp(p.Context, p.width)*p.padded),
			queryRows:     make([]float32, p.queries.rows.Size(block, p.Size)),
			dRows:         make([]float32, p.queries.rows.Size(block, p.Size)),
			queriesAcross: make([]float32, p.queries.across.Size(p.Size, block)),
			dAcross:       make([]float32, p.queries.across.Size(p.Size, block)),
			means:         make([]float32, block),
			dQuery:        make([]float32, block*p.padded),
			weights:       make([]float32, roundUp(block, p.height)*p.width),
			dScores:       make([]float32, roundUp(block, p.height)*p.width),
			transposed:    make([]float32, block*p.panels.Words(block)),
			rows:          p.newRows(),
		}
	}
	return p, nil
}

// Inputs holds the inputs of attention, in row-major order: queries of shape [batch, context,
// heads, size], keys and values of shape [batch, context, key heads, size].
type Inputs struct {
	Query, Key, Value matmul.Elements // each in float32 or bfloat16
	// Segments, [batch, context], gives the number of the document of each token. A query attends
	// only to keys of its own document. If it is nil, each row is one document.
	Segments []int32
}

// Logs returns the number of elements that the forward pass keeps for the backward pass: the
// log-sum-exp of the scores of each query and head, of shape [batch, heads, context].
func (p *Plan) Logs() int { return p.Batch * p.Heads * p.Context }

// firstKey returns the first key in the window of a query, rounded down to the start of a block.
func (p *Plan) firstKey(query int) int {
	if p.Window == 0 {
		return 0
	}
	return max(0, query+1-p.Window) / blockSize * blockSize
}

// query and key return the offset of a query or key head at a position.
func (p *Plan) query(batch, position, head int) int {
	return ((batch*p.Context+position)*p.Heads + head) * p.Size
}

func (p *Plan) key(batch, position, head int) int {
	return ((batch*p.Context+position)*p.KeyHeads + head/(p.Heads/p.KeyHeads)) * p.Size
}

func (p *Plan) check(in Inputs, output int, logs []float32) error {
	positions := p.Batch * p.Context
	for _, s := range []struct {
		name       string
		have, want int
	}{
		{"queries", in.Query.Len(), positions * p.Heads * p.Size},
		{"keys", in.Key.Len(), positions * p.KeyHeads * p.Size},
		{"values", in.Value.Len(), positions * p.KeyHeads * p.Size},
		{"results", output, positions * p.Heads * p.Size},
		{"logarithms", len(logs), p.Logs()},
	} {
		if s.have != s.want {
			return fmt.Errorf("attention of sizes %+v: got %d elements of %s, want %d", p.Sizes, s.have,
				s.name, s.want)
		}
	}
	for _, e := range []matmul.Elements{in.Query, in.Key, in.Value} {
		if e.Int8 != nil {
			return errors.New("attention of integers: want float32 or bfloat16 tensors")
		}
	}
	if in.Segments != nil && len(in.Segments) != positions {
		return fmt.Errorf("attention of sizes %+v: got %d segments, want %d", p.Sizes, len(in.Segments),
			positions)
	}
	return nil
}
