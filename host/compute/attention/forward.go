package attention

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/compute/matmul"
)

// forwardQueries is the number of queries of one head in a task.
const forwardQueries = 256

type forward struct {
	*matmul.Multiplier
	keys          []float32 // rows, from the first key of a task
	values        []float32 // across, from the first key of a task
	query         []float32 // columns
	weights       []float32 // [keys, width]: a row for each key, finally one for each word of keys
	result        []float32 // [elements, width]
	largest, sums []float32
	rows          rows
}

// Forward computes attention and writes it to output, [batch, context, heads, size], in float32 or
// rounded to bfloat16. For each position it is the weighted sum of the values up to that position.
func (p *Plan) Forward(output matmul.Elements, logs []float32, in Inputs,
	parallel loops.Parallel) error {
	if err := p.check(in, output.Len(), logs); err != nil {
		return err
	}
	all, parts := p.Batch*p.KeyHeads, divideUp(p.Context, forwardQueries)
	parallel(all*parts, func(task int) {
		s := p.forwardScratch.Get().(*forward)
		defer p.forwardScratch.Put(s)
		// The last queries, which attend to the most keys, come first.
		from := (parts - 1 - task/all) * forwardQueries
		p.forward(s, task%all/p.KeyHeads, task%p.KeyHeads, from, min(from+forwardQueries, p.Context),
			output, logs, in)
	})
	return nil
}

// forward computes a range of queries of the query heads that share a key-value head.
func (p *Plan) forward(s *forward, batch, keyHead, from, to int, output matmul.Elements,
	logs []float32, in Inputs) {
	group, first := p.Heads/p.KeyHeads, p.firstKey(from)
	at := p.key(batch, 0, keyHead*group)
	p.keys.rows.Pack(s.keys, in.Key.From(at), first, to-first, 0, p.Size)
	p.keys.across.Pack(s.values, in.Value.From(at), 0, p.Size, first, to-first)
	for head := keyHead * group; head < (keyHead+1)*group; head++ {
		for query := from; query < to; query += p.width {
			p.forwardBlock(s, batch, head, query, first, to, output, logs, in)
		}
	}
}

// forwardBlock computes the output for a block of queries, which are columns of blocks of weights.
// The first key is the same for all blocks of a task, for sums in the same order on all processors.
func (p *Plan) forwardBlock(s *forward, batch, head, query, first, to int,
	output matmul.Elements, logs []float32, in Inputs) {
	width, height, size := p.width, p.height, p.panels.Words(p.Size)
	queries, last := min(width, to-query), min(query+width, p.Context)
	keys, words := last-first, p.panels.Words
	p.queries.columns.Pack(s.query, in.Query.From(p.query(batch, 0, head)), query, queries, 0, p.Size)
	s.Multiply(divideUp(keys, height), size, s.keys, height*size, s.query, s.weights,
		width, false)
	weights := s.weights[:keys*width]
	loops.Softcap(weights, p.limit)
	p.maskForward(weights, in.Segments, batch, query, first, last)

	loops.Fill(s.largest, float32(math.Inf(-1)))
	clear(s.sums)
	loops.MaxColumns(s.largest, weights)
	for i := range s.largest {
		s.largest[i] *= p.scale
	}
	loops.ExpColumns(weights, p.scale, s.largest, s.sums, p.form)
	p.pad(s.weights, keys)

	s.Multiply(p.padded/height, words(keys), s.values, height*words(to-first), s.weights, s.result,
		width, false)
	for i := range queries {
		logs[(batch*p.Heads+head)*p.Context+query+i] = s.largest[i] +
			float32(math.Log(float64(s.sums[i])))
		s.sums[i] = 1 / s.sums[i]
	}
	at, stride := p.query(batch, query, head), p.Heads*p.Size
	if output.Float32 != nil {
		loops.Transpose(output.Float32[at:], stride, s.result, width, p.Size, queries, s.sums)
		return
	}
	rows := s.rows.float[:queries*p.Size]
	loops.Transpose(rows, p.Size, s.result, width, p.Size, queries, s.sums)
	s.rows.copyTo(output.BFloat16[at:], stride, rows, p.Size)
}

// pad fills the end of a block with zeros, up to the number of words that products read.
func (p *Plan) pad(block []float32, elements int) {
	words := elements
	if p.panels.Pairs() {
		words = divideUp(elements, 2)
	}
	if all := p.panels.Words(elements); words < all {
		clear(block[words*p.width : all*p.width])
	}
}

// rows is a buffer for one panel's positions of one head.
type rows struct {
	float, other []float32
	short        []uint16
}

func (p *Plan) newRows() rows {
	n := p.width * p.Size
	return rows{make([]float32, n), make([]float32, n), make([]uint16, n)}
}

// copyTo is the inverse of copyFrom for a tensor in bfloat16.
func (r *rows) copyTo(to []uint16, stride int, x []float32, width int) {
	short := r.short[:len(x)]
	loops.ToBFloat16(short, x)
	for i := 0; i*width < len(x); i++ {
		copy(to[i*stride:][:width], short[i*width:])
	}
}

// copyFrom fills dst with rows of a tensor x as float32. A row has width elements, and each begins
// stride elements after the previous one.
func (r *rows) copyFrom(dst []float32, x matmul.Elements, stride, width int) {
	if x.BFloat16 == nil {
		for i := 0; i*width < len(dst); i++ {
			copy(dst[i*width:][:width], x.Float32[i*stride:])
		}
		return
	}
	short := r.short[:len(dst)]
	for i := 0; i*width < len(dst); i++ {
		copy(short[i*width:][:width], x.BFloat16[i*stride:])
	}
	loops.FromBFloat16(dst, short)
}

// maskForward masks the scores of the keys from first to last: it sets them to −∞ where a query
// must not attend to a key. query is the query of the first column.
func (p *Plan) maskForward(scores []float32, segments []int32, batch, query, first, last int) {
	infinite := float32(math.Inf(-1))
	row := func(key int) []float32 { return scores[(key-first)*p.width:][:p.width] }
	for key := max(query, first); key < last; key++ {
		loops.Fill(row(key)[:key-query], infinite)
	}
	if p.Window > 0 {
		for key := first; key+p.Window < min(query+p.width, last); key++ { // some query is too late
			loops.Fill(row(key)[max(0, key+p.Window-query):], infinite)
		}
	}
	if segments == nil {
		return
	}
	own := segments[batch*p.Context:][:last]
	if !slices.ContainsFunc(own[first:], func(s int32) bool { return s != own[first] }) {
		return
	}
	for key := first; key < last; key++ {
		row, from := row(key), max(key-query, 0)
		for i, of := range own[query+from:] {
			if of != own[key] {
				row[from+i] = infinite
			}
		}
	}
}

func roundUp(n, unit int) int { return divideUp(n, unit) * unit }

func divideUp(n, by int) int { return (n + by - 1) / by }
