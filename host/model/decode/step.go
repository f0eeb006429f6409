package decode

import (
	"fmt"
	"math"
	"slices"

	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/linalg"
)

// Positions describes the positions of sequences in their caches.
type Positions struct {
	Length int     // capacity of each cache, in tokens
	Start  int     // position of the token that is read
	First  []int32 // position at which each sequence begins, at most Start
}

type step struct {
	*Network
	at       Positions
	quantize Quantizer
	rows     int
	// the residual stream, inputs and outputs of products
	x, in, qkv, mixed, out linalg.MatrixOf[float32]
	gate, up               linalg.MatrixOf[float32]
}

// Next reads the next token of each sequence and returns the logits of the following one,
// [sequences, vocabulary]. caches have the shapes of [model.Language.CacheDims]; Next adds the keys
// and values of this token. A nil quantizer leaves activations unquantized.
func (n *Network) Next(tokens []int32, at Positions, caches [][]float32,
	quantize Quantizer) ([]float32, error) {
	if err := n.check(tokens, at, caches); err != nil {
		return nil, err
	}
	if n.length < at.Length {
		n.length, n.angles = at.Length, map[[2]float64]angles{}
		for layer, b := range n.blocks {
			if _, made := n.angles[b.rope]; !made {
				s := n.s.LayerRope(layer)
				n.angles[b.rope] = angles{s.ByPosition(n.length, math.Cos), s.ByPosition(n.length, math.Sin)}
			}
		}
	}
	matrix := func(cols int) linalg.MatrixOf[float32] {
		return linalg.RowMajor(make([]float32, len(tokens)*cols), len(tokens), cols)
	}
	s := n.s
	r := &step{Network: n, at: at, quantize: quantize, rows: len(tokens),
		x: matrix(s.Width), in: matrix(s.Width), qkv: matrix(s.QueryWidth() + 2*s.KeyWidth()),
		mixed: matrix(s.QueryWidth()), out: matrix(s.Width), gate: matrix(s.Hidden), up: matrix(s.Hidden)}
	for i, id := range tokens {
		id := min(max(int(id), 0), s.Vocab-1)
		row := r.x.Data[i*s.Width:][:s.Width]
		copy(row, n.rows[id*s.Width:])
		if scale := float32(s.InputScale()); scale != 1 {
			for j := range row {
				row[j] *= scale
			}
		}
	}
	for i := range n.blocks {
		if err := r.block(&n.blocks[i], caches[2*i], caches[2*i+1]); err != nil {
			return nil, err
		}
	}
	r.normalize(r.in, r.x, n.norm)
	if err := r.quantizeSite("head.input", r.in); err != nil {
		return nil, err
	}
	logits := matrix(s.Vocab)
	r.linear(logits, r.in, n.head)
	loops.Softcap(logits.Data, s.LogitCap)
	return logits.Data, nil
}

func (n *Network) check(tokens []int32, at Positions, caches [][]float32) error {
	if len(tokens) == 0 || len(at.First) != len(tokens) || at.Start < 0 || at.Start >= at.Length {
		return fmt.Errorf("decode: got %d tokens for %d sequences at position %d, "+
			"want one each below position %d",
			len(tokens), len(at.First), at.Start, at.Length)
	}
	for i, first := range at.First {
		if first < 0 || int(first) > at.Start {
			return fmt.Errorf("decode: sequence %d begins at position %d, want 0 to %d", i, first, at.Start)
		}
	}
	want := len(tokens) * n.s.KVHeads * at.Length * n.s.HeadSize
	if len(caches) != 2*len(n.blocks) {
		return fmt.Errorf("decode: got %d caches, want %d", len(caches), 2*len(n.blocks))
	}
	for _, c := range caches {
		if len(c) != want {
			return fmt.Errorf("decode: got a cache of %d elements, want %d", len(c), want)
		}
	}
	return nil
}

func (r *step) block(b *block, keys, values []float32) error {
	if err := r.layerInput(b.prefix+"attn.qkv.input", b.attentionNorm); err != nil {
		return err
	}
	r.linear(r.qkv, r.in, b.qkv)
	for i := range r.rows {
		for j, v := range b.qkvBias {
			r.qkv.Data[i*r.qkv.Cols+j] += v
		}
	}
	if err := r.attention(b, keys, values); err != nil {
		return err
	}
	if err := r.quantizeSite(b.prefix+"attn.out.input", r.mixed); err != nil {
		return err
	}
	r.linear(r.out, r.mixed, b.out)
	r.addResidual(b.attentionPost)

	if err := r.layerInput(b.prefix+"mlp.input", b.feedForwardNorm); err != nil {
		return err
	}
	upInput := r.in // w2 has the same site, and so the same operand, unless only one of them rounds
	if b.w1.rounds != b.w2.rounds {
		upInput.Data = slices.Clone(r.in.Data)
		r.roundOperand(upInput, b.w2)
	}
	r.roundOperand(r.in, b.w1)
	r.eachRows(b.w1, func(from, to int) {
		b.w1.times(r.gate, r.in, from, to)
		b.w2.times(r.up, upInput, from, to)
		for i := range r.rows {
			gate, up := r.gate.Data[i*r.s.Hidden:][from:to], r.up.Data[i*r.s.Hidden:][from:to]
			if r.rounds { // in a graph, these two are stored in bfloat16
				loops.RoundToBFloat16(gate, gate)
				loops.RoundToBFloat16(up, up)
			}
			if r.s.GELU() {
				geGLU(gate, up)
			} else {
				swiGLU(gate, up)
			}
		}
	})
	if err := r.quantizeSite(b.prefix+"mlp.down.input", r.gate); err != nil {
		return err
	}
	r.linear(r.out, r.gate, b.down)
	r.addResidual(b.feedForwardPost)
	return nil
}

// linear computes y = x·wᵀ. It may round x.
func (r *step) linear(y, x linalg.MatrixOf[float32], w matrix) {
	r.roundOperand(x, w)
	r.eachRows(w, func(from, to int) { w.times(y, x, from, to) })
}

func (r *step) roundOperand(x linalg.MatrixOf[float32], w matrix) {
	if w.rounds {
		loops.RoundToBFloat16(x.Data, x.Data)
	}
}

func (r *step) layerInput(site string, norm []float32) error {
	if len(norm) == 0 {
		copy(r.in.Data, r.x.Data)
	} else {
		r.normalize(r.in, r.x, norm)
	}
	return r.quantizeSite(site, r.in)
}

func (r *step) addResidual(norm []float32) {
	if len(norm) > 0 {
		r.normalize(r.out, r.out, norm)
	}
	scale := float32(r.s.ResidualScale())
	for i, v := range r.out.Data {
		r.x.Data[i] += v * scale
	}
}

func (r *step) quantizeSite(name string, x linalg.MatrixOf[float32]) error {
	site, ok := r.sites[name]
	if r.quantize == nil || !ok {
		return nil
	}
	return r.quantize(site, x.Data)
}

// attention normalizes and rotates queries and keys, quantizes at sites, appends the token's keys
// and values to the caches and computes, for each query head, the weighted sum of the values so
// far. Key-value heads are computed in parallel, each with its group of query heads.
func (r *step) attention(b *block, keys, values []float32) error {
	size, queries, keyWidth := r.s.HeadSize, r.s.QueryWidth(), r.s.KeyWidth()
	// normalized normalizes all heads together or each alone, depending on the length of gain.
	normalized := func(x, gain []float32) {
		for ; len(gain) > 0 && len(x) > 0; x = x[len(gain):] {
			r.normalizeRow(x[:len(gain)], x[:len(gain)], gain)
		}
	}
	scratch := make([]float32, size)
	for i := range r.rows {
		row := r.qkv.Data[i*r.qkv.Cols:]
		normalized(row[:queries], b.queryNorm)
		normalized(row[queries:queries+keyWidth], b.keyNorm)
		for head := range r.s.Heads + r.s.KVHeads {
			r.rotate(row[head*size:][:size], scratch, r.angles[b.rope], r.at.Start)
		}
	}
	for _, o := range []struct {
		name string
		from int
	}{{"queries", 0}, {"keys", queries}, {"values", queries + keyWidth}} {
		site, ok := r.sites[b.prefix+"attn."+o.name]
		if r.quantize == nil || !ok {
			continue
		}
		x := make([]float32, 0, r.rows*site.Width)
		for i := range r.rows {
			x = append(x, r.qkv.Data[i*r.qkv.Cols+o.from:][:site.Width]...)
		}
		if err := r.quantize(site, x); err != nil {
			return err
		}
		for i := range r.rows {
			copy(r.qkv.Data[i*r.qkv.Cols+o.from:], x[i*site.Width:][:site.Width])
		}
	}
	r.parallel(r.rows*r.s.KVHeads, func(i int) {
		r.head(i/r.s.KVHeads, i%r.s.KVHeads, b.window, keys, values)
	})
	return nil
}

func (r *step) head(sequence, head, window int, keys, values []float32) {
	size, group := r.s.HeadSize, r.s.Heads/r.s.KVHeads
	row := r.qkv.Data[sequence*r.qkv.Cols:][:r.qkv.Cols]
	queries := row[head*group*size:][:group*size]
	key := row[(r.s.Heads+head)*size:][:size]
	value := row[(r.s.Heads+r.s.KVHeads+head)*size:][:size]
	cache := (sequence*r.s.KVHeads + head) * r.at.Length * size
	keys, values = keys[cache:][:r.at.Length*size], values[cache:][:r.at.Length*size]

	if r.rounds {
		for _, operand := range [][]float32{queries, key, value} {
			loops.RoundToBFloat16(operand, operand)
		}
	}
	copy(keys[r.at.Start*size:], key)
	copy(values[r.at.Start*size:], value)

	first := int(r.at.First[sequence])
	if window > 0 {
		first = max(first, r.at.Start+1-window)
	}
	seen := r.at.Start + 1 - first
	part := func(cache []float32) linalg.MatrixOf[float32] {
		return linalg.RowMajor(cache[first*size:(r.at.Start+1)*size], seen, size)
	}
	weights := linalg.RowMajor(make([]float32, group*seen), group, seen)
	linalg.FewTimes(weights, linalg.RowMajor(queries, group, size), part(keys))
	for g := range group {
		row := weights.Data[g*seen:][:seen]
		scale := r.s.ScoreScale()
		loops.Softcap(row, r.s.ScoreCap/scale)
		softmax(row, float32(scale))
		if r.rounds {
			loops.RoundToBFloat16(row, row)
		}
		linalg.VectorTimes(r.mixed.Data[sequence*r.mixed.Cols+(head*group+g)*size:][:size], row,
			part(values))
	}
}

// normalize sets the rows of y, which may be x, to x·gain/√(mean(x²)+epsilon).
func (n *Network) normalize(y, x linalg.MatrixOf[float32], gain []float32) {
	for i := range x.Rows {
		n.normalizeRow(y.Data[i*y.RowStride:][:len(gain)], x.Data[i*x.RowStride:][:len(gain)], gain)
	}
}

func (n *Network) normalizeRow(y, x, gain []float32) {
	square := linalg.Dot(x, x)
	scale := float32(1 / math.Sqrt(float64(square)/float64(len(x))+n.s.NormEps))
	for i, v := range x {
		y[i] = v * scale * gain[i]
	}
}

// rotate rotates the pairs of features of a head by the angles of a position, and brings them to
// half-split order. scratch is as long as the head.
func (n *Network) rotate(head, scratch []float32, of angles, position int) {
	half := len(head) / 2
	cos, sin := of.cos[position*half:][:half], of.sin[position*half:][:half]
	copy(scratch, head)
	for i := range half {
		a, b := scratch[i], scratch[half+i]
		if n.s.RopePairs == architecture.Interleaved {
			a, b = scratch[2*i], scratch[2*i+1]
		}
		head[i], head[half+i] = a*cos[i]-b*sin[i], a*sin[i]+b*cos[i]
	}
}
