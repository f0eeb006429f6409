package attention

import (
	"fmt"
	"math"
	"slices"

	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/compute/matmul"
)

// blockSize is the number of queries, and of keys, that the backward pass processes at a time in
// its caches. It is a multiple of the panel sizes of every tier.
const blockSize = 288

func (p *Plan) block() int { return min(blockSize, roundUp(p.Context, p.width)) }

type backward struct {
	*matmul.Multiplier
	// The operands for all keys and values.
	keyColumns, valueColumns, keysAcross []float32
	dKey, dValue                         []float32 // [keys/width, elements, width]
	// The operands for a block of queries. The prefix d marks the adjoints of the output.
	queryRows, dRows, queriesAcross, dAcross []float32
	means                                    []float32 // mean adjoints of the weights
	dQuery                                   []float32 // [queries/width, elements, width]
	// The scores of a block of queries and keys, [queries, width]: at first a row for each query,
	// after conversion to operands a row for each word of queries.
	weights, dScores []float32
	transposed       []float32 // adjoints of scores, [queries/width, words of keys, width]
	rows             rows
}

// Adjoints holds the outputs of the backward pass: the adjoints of queries, keys and values, each
// with the shape of its tensor.
type Adjoints struct{ Query, Key, Value []float32 }

type gradient struct {
	Inputs
	out             Adjoints
	logs            []float32
	output, dOutput matmul.Elements
}

// Backward computes the adjoints of queries, keys and values from dOutput, the adjoint of output.
// output and logs are the results of the forward pass.
func (p *Plan) Backward(out Adjoints, in Inputs, output matmul.Elements, logs []float32,
	dOutput matmul.Elements, parallel loops.Parallel) error {
	if err := p.check(in, output.Len(), logs); err != nil {
		return err
	}
	if dOutput.Len() != output.Len() {
		return fmt.Errorf("attention of sizes %+v: the output and its adjoint differ in size",
			p.Sizes)
	}
	if len(out.Query) != in.Query.Len() || len(out.Key) != in.Key.Len() ||
		len(out.Value) != in.Value.Len() {
		return fmt.Errorf("attention of sizes %+v: an adjoint and its tensor differ in size",
			p.Sizes)
	}
	g := &gradient{in, out, logs, output, dOutput}
	// Each task sums the adjoints of a whole key-value head, block by block, so that the order of
	// the sums is fixed.
	parallel(p.Batch*p.KeyHeads, func(task int) {
		s := p.backwardScratch.Get().(*backward)
		defer p.backwardScratch.Put(s)
		p.backward(s, g, task/p.KeyHeads, task%p.KeyHeads)
	})
	return nil
}

// backward computes the adjoints of a key-value head and of the query heads that share it.
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
	p.store(g.out.Key, p.KeyHeads, batch, keyHead, 0, p.Context, s.dKey)
	p.store(g.out.Value, p.KeyHeads, batch, keyHead, 0, p.Context, s.dValue)
}

// backwardQueries computes the adjoints of a block of queries, and their contributions to the
// adjoints of the keys and values they see.
func (p *Plan) backwardQueries(s *backward, g *gradient, batch, head, from, to int) {
	n, words := to-from, p.panels.Words
	at := p.query(batch, 0, head)
	dOutput := g.dOutput.From(at)
	p.queries.rows.Pack(s.queryRows, g.Query.From(at), from, n, 0, p.Size)
	p.queries.rows.Pack(s.dRows, dOutput, from, n, 0, p.Size)
	p.queries.across.Pack(s.queriesAcross, g.Query.From(at), 0, p.Size, from, n)
	p.queries.across.Pack(s.dAcross, dOutput, 0, p.Size, from, n)
	stride := p.Heads * p.Size
	for i := 0; i < n; i += p.width {
		// For each query, Σ weight·(its adjoint) over the keys equals Σ output·(its adjoint).
		rows := min(p.width, n-i)
		d, output := s.rows.float[:rows*p.Size], s.rows.other[:rows*p.Size]
		s.rows.copyFrom(d, g.dOutput.From(at+(from+i)*stride), stride, p.Size)
		s.rows.copyFrom(output, g.output.From(at+(from+i)*stride), stride, p.Size)
		loops.GroupSumMul(s.means[i:i+rows], d, output, p.Size)
	}
	logs := g.logs[(batch*p.Heads+head)*p.Context+from:][:n]
	for first := p.firstKey(from); first < to; first += blockSize {
		last := min(first+blockSize, to)
		for key := first; key < last; key += p.width {
			p.backwardKeys(s, g, batch, from, to, key, logs)
			// The adjoints of the queries are products of the transposed adjoints of scores.
			unseen := max(0, key-from)
			for i := unseen; i < n; i += p.width {
				to := s.transposed[i*words(p.block())+words(key-first)*p.width:]
				p.form.Transpose(to, p.width, s.dScores[(unseen+words(i-unseen))*p.width:], p.width,
					words(min(p.width, n-i)), p.width)
			}
		}
		p.addToQueries(s, from, to, first, last)
	}
	p.store(g.out.Query, p.Heads, batch, head, from, to, s.dQuery)
}

// backwardKeys computes the adjoints of the scores of a block of queries and one panel of keys, and
// adds their contributions to the adjoints of these keys and values.
func (p *Plan) backwardKeys(s *backward, g *gradient, batch, from, to, key int, logs []float32) {
	width, height, n, words := p.width, p.height, to-from, p.panels.Words
	size := words(p.Size)
	first := max(0, key-from) // earlier queries see none of the keys
	i := first / height * height
	panels := divideUp(n-i, height)
	s.Multiply(panels, size, s.queryRows[i*size:], height*size, s.keyColumns[key*size:],
		s.weights[i*width:], width, false)
	s.Multiply(panels, size, s.dRows[i*size:], height*size, s.valueColumns[key*size:],
		s.dScores[i*width:], width, false)
	weights, dScores, seen := s.weights[first*width:], s.dScores[first*width:], (n-first)*width
	p.capBackward(weights[:seen], dScores, s.means[first:n])
	p.maskBackward(weights[:seen], g.Segments, batch, from+first, to, key)
	loops.ExpRows(weights[:seen], dScores[:seen], p.scale, logs[first:], s.means[first:n], p.form)
	p.pad(weights, n-first)
	p.pad(dScores, n-first)
	all, before := words(n), words(first)
	at, elements := key*p.padded, p.padded/height
	s.Multiply(elements, all-before, s.dAcross[before*height:], height*all, weights, s.dValue[at:],
		width, true)
	s.Multiply(elements, all-before, s.queriesAcross[before*height:], height*all, dScores, s.dKey[at:],
		width, true)
}

// capBackward caps products. The adjoint of a score, which is proportional to d − its row's mean,
// is multiplied by the derivative, 1 − (score/cap)².
func (p *Plan) capBackward(products, d, means []float32) {
	if p.limit == 0 {
		return
	}
	loops.Softcap(products, p.limit)
	for i, x := range products {
		t, mean := x/float32(p.limit), means[i/p.width]
		// A product that is converted is not fused with a sum, which some processors do.
		d[i] = mean + float32((d[i]-mean)*(1-float32(t*t)))
	}
}

// addToQueries adds the contributions of a block of keys to the adjoints of a block of queries.
func (p *Plan) addToQueries(s *backward, from, to, first, last int) {
	width, height, words := p.width, p.height, p.panels.Words
	more := first > p.firstKey(from)
	for i := 0; i < to-from; i += width {
		seen := words(min(last, from+i+width) - first)
		s.Multiply(p.padded/height, seen, s.keysAcross[words(first)*height:], height*words(p.Context),
			s.transposed[i*words(p.block()):], s.dQuery[i*p.padded:], width, more)
	}
}

// maskBackward masks scores: it sets them to −∞ where a query must not attend to a key. The query
// at from is the first that attends to any of the keys.
func (p *Plan) maskBackward(scores []float32, segments []int32, batch, from, to, key int) {
	infinite := float32(math.Inf(-1))
	for query := from; query < min(to, key+p.width-1); query++ {
		row := scores[(query-from)*p.width:][:p.width]
		loops.Fill(row[query+1-key:], infinite)
	}
	if p.Window > 0 {
		for query := max(from, key+p.Window); query < to; query++ {
			row := scores[(query-from)*p.width:][:p.width]
			loops.Fill(row[:min(p.width, query+1-p.Window-key)], infinite)
		}
	}
	if segments == nil {
		return
	}
	own := segments[batch*p.Context:][:p.Context]
	if !slices.ContainsFunc(own[key:to], func(s int32) bool { return s != own[key] }) {
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

// store writes the adjoints of one of the heads of a tensor at the given positions. blocks has the
// shape [positions/width, elements, width].
func (p *Plan) store(out []float32, heads, batch, head, from, to int, blocks []float32) {
	for ; from < to; from, blocks = from+p.width, blocks[p.width*p.padded:] {
		at := ((batch*p.Context+from)*heads + head) * p.Size
		loops.Transpose(out[at:], heads*p.Size, blocks, p.width, p.Size, min(p.width, to-from), nil)
	}
}
