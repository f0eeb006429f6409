// Package attention computes causal attention on the processor, forward and backward, in blocks of queries: the weights of a
// block are made, used and forgotten in the caches, and only one number for each query and head is kept for the backward
// pass, which makes the weights again (Dao et al., "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness", 2022).
// Keys after the last query of a block are never multiplied, which is nearly half of all.
//
// Products are those of package matmul, with operands rounded to bfloat16 or as they are, and sums in float32. This package knows
// slices of numbers; graphs and devices are known to its callers.
package attention

import (
	"fmt"
	"math"
	"sync"

	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/compute/matmul"
)

// Sizes of attention. Each head of keys and values serves Heads/KeyHeads heads of queries that follow each other.
type Sizes struct {
	Batch, Context  int
	Heads, KeyHeads int // KeyHeads divides Heads
	Size            int // of a head
}

// A Plan computes attention of given sizes. It may be used by several goroutines at once.
type Plan struct {
	Sizes
	scale   float32 // of the products of queries and keys
	blocks  []block
	scratch sync.Pool
}

// block has the products for the queries from one position to another, and the keys before some position.
type block struct {
	from, to int             // queries
	keys     int             // at least to
	scores   *matmul.Product // of a query and a key, or of an adjoint of the output and a value
	values   *matmul.Product // of a row of weights and the values, or of adjoints of scores and the keys
	dKeys    *matmul.Product // of columns of adjoints of scores, or of weights, and rows of queries, or of adjoints of the output, added
}

// New plans attention whose products have the given arithmetic: [matmul.BFloat16] or [matmul.Float32]. Size 0 of anything is an error.
func New(t *matmul.Tier, a matmul.Arithmetic, s Sizes) (*Plan, error) {
	if a != matmul.BFloat16 && a != matmul.Float32 {
		return nil, fmt.Errorf("attention in %v: it takes bfloat16 or float32", a)
	}
	if s.Batch < 1 || s.Context < 1 || s.KeyHeads < 1 || s.Heads < 1 || s.Size < 1 || s.Heads%s.KeyHeads != 0 {
		return nil, fmt.Errorf("attention of sizes %+v: all must be positive, and heads a multiple of key heads", s)
	}
	p := &Plan{Sizes: s, scale: float32(1 / math.Sqrt(float64(s.Size)))}
	query, key, inner := s.Heads*s.Size, s.KeyHeads*s.Size, matmul.Axis{Size: s.Size, Stride: 1}
	// As many queries as keep the scores of a block, and their adjoints, in the second cache, in whole tiles of products.
	const tile, scores = 48, 1 << 15
	rows := max(tile, min(4*tile, scores/s.Context/tile*tile))
	for from := 0; from < s.Context; from += rows {
		to := min(from+rows, s.Context)
		b := block{from: from, to: to, keys: min((to+lanes-1)/lanes*lanes, s.Context)}
		m, n := b.to-b.from, b.keys
		queries, keys := matmul.Axis{Size: m, Stride: query}, matmul.Axis{Size: n, Stride: key}
		square := func(cross, contracted matmul.Axis) matmul.Layout {
			return matmul.Layout{Cross: []matmul.Axis{cross}, Contracted: []matmul.Axis{contracted}}
		}
		matrixRow, matrixColumn := matmul.Axis{Size: m, Stride: n}, matmul.Axis{Size: n, Stride: 1}
		for _, product := range []struct {
			to          **matmul.Product
			left, right matmul.Layout
			options     matmul.Options
		}{
			{&b.scores, square(queries, inner), square(keys, inner), matmul.Options{}},
			{&b.values, square(matrixRow, matrixColumn), square(inner, keys), matmul.Options{}},
			{&b.dKeys, square(matrixColumn, matrixRow), square(inner, queries), matmul.Options{Add: true}},
		} {
			var err error
			if *product.to, err = matmul.New(t, a, product.left, product.right, product.options); err != nil {
				return nil, fmt.Errorf("attention of sizes %+v: %w", s, err)
			}
		}
		p.blocks = append(p.blocks, b)
	}
	p.scratch.New = func() any {
		return &scratch{
			weights: make([]float32, rows*s.Context),
			dScores: make([]float32, rows*s.Context),
			result:  make([]float32, rows*s.Size),
			dKey:    make([]float32, s.Context*s.Size),
			dValue:  make([]float32, s.Context*s.Size),
			inverse: make([]float32, rows),
		}
	}
	return p, nil
}

// lanes is a number of elements of which loops take multiples at their best.
const lanes = 64

// scratch is the memory of a task.
type scratch struct{ weights, dScores, result, dKey, dValue, inverse []float32 }

// Inputs are what attention reads, in row-major order: queries [batch, context, heads, size], keys and values [batch, context,
// key heads, size].
type Inputs struct {
	Query, Key, Value []float32
	// Segments [batch, context] numbers the documents in each row; a query sees keys of its own document only. Nil means one
	// document in each row.
	Segments []int32
}

// Logs is the number of elements that the forward pass keeps for the backward pass: for each query and head, [batch, heads,
// context], the logarithm of the sum of its exponentials.
func (p *Plan) Logs() int { return p.Batch * p.Heads * p.Context }

// Forward computes what each position mixes from the values of those before it and its own, [batch, context, heads, size].
func (p *Plan) Forward(mixed, logs []float32, in Inputs, parallel func(n int, f func(i int))) error {
	if err := p.check(in, mixed, logs); err != nil {
		return err
	}
	var failed firstError
	parallel(p.Batch*p.Heads*len(p.blocks), func(task int) {
		// The last blocks are the longest: they come first.
		b := &p.blocks[len(p.blocks)-1-task/(p.Batch*p.Heads)]
		batch, head := task%(p.Batch*p.Heads)/p.Heads, task%p.Heads
		s := p.scratch.Get().(*scratch)
		defer p.scratch.Put(s)
		failed.set(p.forward(s, b, batch, head, mixed, logs, in))
	})
	return failed.err
}

func (p *Plan) forward(s *scratch, b *block, batch, head int, mixed, logs []float32, in Inputs) error {
	m, n := b.to-b.from, b.keys
	weights, result := s.weights[:m*n], s.result[:m*p.Size]
	value := matmul.Elements{Float32: in.Value[p.key(batch, 0, head):]}
	if err := p.multiplyByKeys(b.scores, weights, in.Query, in.Key, batch, b.from, head); err != nil {
		return err
	}
	var sums [1]float32
	inverse := s.inverse[:m]
	for i := range m {
		row := weights[i*n : (i+1)*n]
		p.hide(row, in.Segments, batch, b.from+i)
		loops.GroupFold(loops.Max, sums[:], row, n)
		largest := sums[0] * p.scale
		loops.ExpLin(row, row, p.scale, largest)
		loops.GroupFold(loops.Add, sums[:], row, n)
		logs[(batch*p.Heads+head)*p.Context+b.from+i] = largest + float32(math.Log(float64(sums[0])))
		inverse[i] = 1 / sums[0]
	}
	if err := b.values.Run(result, matmul.Elements{Float32: weights}, value, matmul.Scales{}, nil); err != nil {
		return err
	}
	for i := range m {
		loops.BinaryS(loops.Mul, mixed[p.query(batch, b.from+i, head):][:p.Size], result[i*p.Size:][:p.Size], inverse[i])
	}
	return nil
}

// Backward computes the adjoints of queries, keys and values from dMixed, that of the forward pass's result mixed. logs are
// those of the forward pass.
func (p *Plan) Backward(dQuery, dKey, dValue []float32, in Inputs, mixed, logs, dMixed []float32, parallel func(n int, f func(i int))) error {
	if err := p.check(in, mixed, logs); err != nil {
		return err
	}
	if len(dMixed) != len(mixed) || len(dQuery) != len(in.Query) || len(dKey) != len(in.Key) || len(dValue) != len(in.Value) {
		return fmt.Errorf("attention of sizes %+v: an adjoint does not have the size of its tensor", p.Sizes)
	}
	var failed firstError
	// One task adds up the adjoints of a head of keys, block by block, so that the order of the sums is always the same.
	parallel(p.Batch*p.KeyHeads, func(task int) {
		s := p.scratch.Get().(*scratch)
		defer p.scratch.Put(s)
		batch, keyHead, group := task/p.KeyHeads, task%p.KeyHeads, p.Heads/p.KeyHeads
		clear(s.dKey)
		clear(s.dValue)
		for head := keyHead * group; head < (keyHead+1)*group; head++ {
			for i := range p.blocks {
				if err := p.backward(s, &p.blocks[i], batch, head, dQuery, in, mixed, logs, dMixed); err != nil {
					failed.set(err)
					return
				}
			}
		}
		for i := range p.Context {
			at := p.key(batch, i, keyHead*group)
			copy(dKey[at:][:p.Size], s.dKey[i*p.Size:])
			copy(dValue[at:][:p.Size], s.dValue[i*p.Size:])
		}
	})
	return failed.err
}

func (p *Plan) backward(s *scratch, b *block, batch, head int, dQuery []float32, in Inputs, mixed, logs, dMixed []float32) error {
	m, n := b.to-b.from, b.keys
	weights, dScores, result := s.weights[:m*n], s.dScores[:m*n], s.result[:m*p.Size]
	if err := p.multiplyByKeys(b.scores, weights, in.Query, in.Key, batch, b.from, head); err != nil {
		return err
	}
	if err := p.multiplyByKeys(b.scores, dScores, dMixed, in.Value, batch, b.from, head); err != nil {
		return err
	}
	var sum [1]float32
	for i := range m {
		row, dRow := weights[i*n:(i+1)*n], dScores[i*n:(i+1)*n]
		p.hide(row, in.Segments, batch, b.from+i)
		loops.ExpLin(row, row, p.scale, logs[(batch*p.Heads+head)*p.Context+b.from+i])
		// The adjoint of the scores is weights·(dWeights − Σ weights·dWeights); the sum over keys equals one over the output.
		at := p.query(batch, b.from+i, head)
		loops.GroupSumMul(sum[:], dMixed[at:at+p.Size], mixed[at:at+p.Size], p.Size)
		loops.BinaryS(loops.Sub, dRow, dRow, sum[0])
		loops.MulMulS(dRow, dRow, row, p.scale) // 0 where nothing is seen
	}
	key := matmul.Elements{Float32: in.Key[p.key(batch, 0, head):]}
	query := matmul.Elements{Float32: in.Query[p.query(batch, b.from, head):]}
	dOut := matmul.Elements{Float32: dMixed[p.query(batch, b.from, head):]}
	if err := b.values.Run(result, matmul.Elements{Float32: dScores}, key, matmul.Scales{}, nil); err != nil {
		return err
	}
	for i := range m {
		copy(dQuery[p.query(batch, b.from+i, head):][:p.Size], result[i*p.Size:])
	}
	if err := b.dKeys.Run(s.dKey[:n*p.Size], matmul.Elements{Float32: dScores}, query, matmul.Scales{}, nil); err != nil {
		return err
	}
	return b.dKeys.Run(s.dValue[:n*p.Size], matmul.Elements{Float32: weights}, dOut, matmul.Scales{}, nil)
}

// multiplyByKeys multiplies rows of queries, or of what is laid out as they are, by those of keys or values.
func (p *Plan) multiplyByKeys(product *matmul.Product, out, rows, keys []float32, batch, from, head int) error {
	left, right := matmul.Elements{Float32: rows[p.query(batch, from, head):]}, matmul.Elements{Float32: keys[p.key(batch, 0, head):]}
	return product.Run(out, left, right, matmul.Scales{}, nil)
}

// query and key are the places of a head at a position. Heads of queries name those of keys, too.
func (p *Plan) query(batch, position, head int) int {
	return ((batch*p.Context+position)*p.Heads + head) * p.Size
}

func (p *Plan) key(batch, position, head int) int {
	return ((batch*p.Context+position)*p.KeyHeads + head/(p.Heads/p.KeyHeads)) * p.Size
}

// hide makes the weights zero of the keys that the query at a position does not see: their scores are −∞.
func (p *Plan) hide(row []float32, segments []int32, batch, position int) {
	infinite := float32(math.Inf(-1))
	loops.Fill(row[position+1:], infinite)
	if segments == nil {
		return
	}
	own := segments[batch*p.Context:]
	for i := range position {
		if own[i] != own[position] {
			row[i] = infinite
		}
	}
}

func (p *Plan) check(in Inputs, mixed, logs []float32) error {
	positions := p.Batch * p.Context
	for _, s := range []struct {
		name       string
		have, want int
	}{
		{"queries", len(in.Query), positions * p.Heads * p.Size},
		{"keys", len(in.Key), positions * p.KeyHeads * p.Size},
		{"values", len(in.Value), positions * p.KeyHeads * p.Size},
		{"results", len(mixed), positions * p.Heads * p.Size},
		{"logarithms", len(logs), p.Logs()},
	} {
		if s.have != s.want {
			return fmt.Errorf("attention of sizes %+v: %d elements of %s, want %d", p.Sizes, s.have, s.name, s.want)
		}
	}
	if in.Segments != nil && len(in.Segments) != positions {
		return fmt.Errorf("attention of sizes %+v: %d segments, want %d", p.Sizes, len(in.Segments), positions)
	}
	return nil
}

// firstError keeps the first error of several goroutines.
type firstError struct {
	once sync.Once
	err  error
}

func (f *firstError) set(err error) {
	if err != nil {
		f.once.Do(func() { f.err = err })
	}
}
