package attention

import (
	"fmt"
	"math"

	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/compute/matmul"
)

// blockSize is how many queries, and how many keys, the backward pass has in its caches at a time: whole panels of every tier.
const blockSize = 288

// block is the size of blocks in this plan.
func (p *Plan) block() int { return min(blockSize, roundUp(p.Context, p.width)) }

// backward is the memory of a task.
type backward struct {
	*matmul.Multiplier
	// Of all keys and values.
	keyColumns, valueColumns, keysAcross []float32
	dKey, dValue                         []float32 // [keys/width, elements, width]
	// Of a block of queries; d are the adjoints of the output.
	queryRows, dRows, queriesAcross, dAcross []float32
	means                                    []float32 // of the adjoints of the weights
	dQuery                                   []float32 // [queries/width, elements, width]
	// Of a block of queries and keys.
	weights, dScores []float32 // [queries, width]: a row for each query, or in the end for the queries of a word
	turned           []float32 // adjoints of scores, [queries/width, words of keys, width]
}

func (p *Plan) newBackward() *backward {
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
		turned:        make([]float32, block*p.panels.Words(block)),
	}
}

// gradient is what a call of Backward reads and writes.
type gradient struct {
	Inputs
	mixed, logs, dMixed  []float32
	dQuery, dKey, dValue []float32
}

// Backward computes the adjoints of queries, keys and values from dMixed, that of the forward pass's result mixed. logs are
// those of the forward pass.
func (p *Plan) Backward(dQuery, dKey, dValue []float32, in Inputs, mixed, logs, dMixed []float32, parallel func(n int, f func(i int))) error {
	if err := p.check(in, mixed, logs); err != nil {
		return err
	}
	if len(dMixed) != len(mixed) || len(dQuery) != in.Query.Len() || len(dKey) != in.Key.Len() || len(dValue) != in.Value.Len() {
		return fmt.Errorf("attention of sizes %+v: an adjoint does not have the size of its tensor", p.Sizes)
	}
	g := &gradient{in, mixed, logs, dMixed, dQuery, dKey, dValue}
	// One task adds up the adjoints of a head of keys, block by block, so that the order of the sums is always the same.
	parallel(p.Batch*p.KeyHeads, func(task int) {
		s := p.backwardScratch.Get().(*backward)
		defer p.backwardScratch.Put(s)
		p.backward(s, g, task/p.KeyHeads, task%p.KeyHeads)
	})
	return nil
}

// backward computes the heads that share a head of keys.
func (p *Plan) backward(s *backward, g *gradient, batch, keyHead int) {
	group := p.Heads / p.KeyHeads
	at := p.key(batch, 0, keyHead*group)
	p.keys.columns.Pack(s.keyColumns, g.Key.From(at), 0, p.Context, 0, p.Size)
	p.keys.columns.Pack(s.valueColumns, g.Value.From(at), 0, p.Context, 0, p.Size)
	p.keys.across.Pack(s.keysAcross, g.Key.From(at), 0, p.Size, 0, p.Context)
	clear(s.dKey)
	clear(s.dValue)
	for head := keyHead * group; head < (keyHead+1)*group; head++ {
		for from := 0; from < p.Context; from += blockSize {
			p.backwardQueries(s, g, batch, head, from, min(from+blockSize, p.Context))
		}
	}
	stride := p.KeyHeads * p.Size
	p.store(g.dKey[at:], stride, s.dKey, p.Context)
	p.store(g.dValue[at:], stride, s.dValue, p.Context)
	s.Report(5 * p.operations(0, p.Context))
}

// backwardQueries computes the adjoints of a block of queries, and what they add to those of the keys and values they see.
func (p *Plan) backwardQueries(s *backward, g *gradient, batch, head, from, to int) {
	n, words := to-from, p.panels.Words
	at := p.query(batch, 0, head)
	dMixed := matmul.Elements{Float32: g.dMixed[at:]}
	p.queries.rows.Pack(s.queryRows, g.Query.From(at), from, n, 0, p.Size)
	p.queries.rows.Pack(s.dRows, dMixed, from, n, 0, p.Size)
	p.queries.across.Pack(s.queriesAcross, g.Query.From(at), 0, p.Size, from, n)
	p.queries.across.Pack(s.dAcross, dMixed, 0, p.Size, from, n)
	for i := range n {
		// The sum over keys of weights and their adjoints equals one over the output.
		at := p.query(batch, from+i, head)
		loops.GroupSumMul(s.means[i:i+1], g.dMixed[at:at+p.Size], g.mixed[at:at+p.Size], p.Size)
	}
	logs := g.logs[(batch*p.Heads+head)*p.Context+from:][:n]
	for first := 0; first < to; first += blockSize {
		last := min(first+blockSize, to)
		for key := first; key < last; key += p.width {
			p.backwardKeys(s, g, batch, from, to, key, logs)
			// Turned, the adjoints of scores are operands of the adjoints of queries.
			unseen := max(0, key-from)
			for i := unseen; i < n; i += p.width {
				to := s.turned[i*words(p.block())+words(key-first)*p.width:]
				p.form.Turn(to, p.width, s.dScores[(unseen+words(i-unseen))*p.width:], p.width, words(min(p.width, n-i)), p.width)
			}
		}
		p.addToQueries(s, from, to, first, last)
	}
	p.store(g.dQuery[p.query(batch, from, head):], p.Heads*p.Size, s.dQuery, n)
}

// backwardKeys computes the adjoints of the scores of a block of queries and as many keys as a panel has, and adds to the adjoints
// of these keys and their values.
func (p *Plan) backwardKeys(s *backward, g *gradient, batch, from, to, key int, logs []float32) {
	width, height, n, words := p.width, p.height, to-from, p.panels.Words
	size := words(p.Size)
	first := max(0, key-from) // queries before see none of the keys
	i := first / height * height
	panels := divideUp(n-i, height)
	s.Multiply(panels, size, s.queryRows[i*size:], height*size, s.keyColumns[key*size:], s.weights[i*width:], width, false)
	s.Multiply(panels, size, s.dRows[i*size:], height*size, s.valueColumns[key*size:], s.dScores[i*width:], width, false)
	weights, dScores := s.weights[first*width:n*width], s.dScores[first*width:n*width]
	p.hideKeys(weights, g.Segments, batch, from+first, to, key)
	loops.ExpRows(weights, dScores, p.scale, logs[first:], s.means[first:n], p.form)
	all, before := words(n), words(first)
	at, elements := key*p.padded, p.padded/height
	s.Multiply(elements, all-before, s.dAcross[before*height:], height*all, weights, s.dValue[at:], width, true)
	s.Multiply(elements, all-before, s.queriesAcross[before*height:], height*all, dScores, s.dKey[at:], width, true)
}

// addToQueries computes what a block of keys adds to the adjoints of a block of queries.
func (p *Plan) addToQueries(s *backward, from, to, first, last int) {
	width, height, words := p.width, p.height, p.panels.Words
	for i := 0; i < to-from; i += width {
		seen := words(min(last, from+i+width) - first)
		s.Multiply(p.padded/height, seen, s.keysAcross[words(first)*height:], height*words(p.Context), s.turned[i*words(p.block()):], s.dQuery[i*p.padded:], width, first > 0)
	}
}

// hideKeys makes the scores −∞ of the keys that queries do not see. The first query is the first one that sees one of the keys.
func (p *Plan) hideKeys(scores []float32, segments []int32, batch, from, to, key int) {
	infinite := float32(math.Inf(-1))
	for query := from; query < min(to, key+p.width-1); query++ {
		row := scores[(query-from)*p.width:][:p.width]
		loops.Fill(row[query+1-key:], infinite)
	}
	if segments == nil {
		return
	}
	own := segments[batch*p.Context:][:p.Context]
	if alike(own[key:to]) {
		return
	}
	for query := from; query < to; query++ {
		row := scores[(query-from)*p.width:][:p.width]
		for i := key; i < min(key+p.width, query); i++ {
			if own[i] != own[query] {
				row[i-key] = infinite
			}
		}
	}
}

// store writes positions, which lie in blocks [positions/width, elements, width], to rows that are stride apart.
func (p *Plan) store(to []float32, stride int, blocks []float32, positions int) {
	for i := 0; i < positions; i += p.width {
		loops.Transpose(to[i*stride:], stride, blocks[i*p.padded:], p.width, p.Size, min(p.width, positions-i), nil)
	}
}
