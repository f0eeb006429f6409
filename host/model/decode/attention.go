package decode

import (
	"math"

	"github.com/cage-qat/cage/internal/linalg"
	"github.com/cage-qat/cage/internal/vecmath"
)

// attention puts keys and values of the token into the caches and mixes, for each head of queries, the values of the
// sequence so far. Heads of keys are computed side by side, each with its group of heads of queries.
func (r *step) attention(b *block, keys, values []float32) {
	r.normalizeHeads(b)
	r.team.each(r.rows*r.s.KVHeads, 1, func(from, to int) {
		for i := from; i < to; i++ {
			r.head(i/r.s.KVHeads, i%r.s.KVHeads, keys, values)
		}
	})
}

// normalizeHeads normalizes queries and keys where the block has gains for them: over all heads, or each head alone.
func (r *step) normalizeHeads(b *block) {
	queries, keys := r.s.Heads*r.s.HeadSize, r.s.KVHeads*r.s.HeadSize
	normalized := func(x, gain []float32) {
		for ; len(gain) > 0 && len(x) > 0; x = x[len(gain):] {
			r.normalizeRow(x[:len(gain)], x[:len(gain)], gain)
		}
	}
	for i := range r.rows {
		row := r.qkv.Data[i*r.qkv.Cols:]
		normalized(row[:queries], b.queryNorm)
		normalized(row[queries:queries+keys], b.keyNorm)
	}
}

// head computes one head of keys of a sequence.
func (r *step) head(sequence, head int, keys, values []float32) {
	size, group := r.s.HeadSize, r.s.Heads/r.s.KVHeads
	row := r.qkv.Data[sequence*r.qkv.Cols:][:r.qkv.Cols]
	queries := row[head*group*size:][:group*size]
	key := row[(r.s.Heads+head)*size:][:size]
	value := row[(r.s.Heads+r.s.KVHeads+head)*size:][:size]
	cache := (sequence*r.s.KVHeads + head) * r.at.Length * size
	keys, values = keys[cache:][:r.at.Length*size], values[cache:][:r.at.Length*size]

	spare := make([]float32, size)
	r.turn(key, spare, r.at.Start)
	for g := range group {
		r.turn(queries[g*size:][:size], spare, r.at.Start)
	}
	copy(keys[r.at.Start*size:], key)
	copy(values[r.at.Start*size:], value)

	first := int(r.at.First[sequence])
	seen := r.at.Start + 1 - first
	part := func(cache []float32) linalg.MatrixOf[float32] {
		return linalg.RowMajor(cache[first*size:(r.at.Start+1)*size], seen, size)
	}
	weights := linalg.RowMajor(make([]float32, group*seen), group, seen)
	linalg.FewTimes(weights, linalg.RowMajor(queries, group, size), part(keys))
	for g := range group {
		row := weights.Data[g*seen:][:seen]
		vecmath.Softmax(row, float32(1/math.Sqrt(float64(size))))
		linalg.VectorTimes(r.mixed.Data[sequence*r.mixed.Cols+(head*group+g)*size:][:size], row, part(values))
	}
}
