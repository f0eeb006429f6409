package decode

import (
	"fmt"

	"github.com/cage-qat/cage/internal/linalg"
	"github.com/cage-qat/cage/internal/vecmath"
)

// Place says at which places of their caches sequences are.
type Place struct {
	Length int     // number of tokens for which each cache has room
	Start  int     // place of the token that is read
	First  []int32 // place at which each sequence begins, none of them after Start
}

// step is one step under way.
type step struct {
	*Network
	at                     Place
	quantize               Quantizer
	team                   *team
	rows                   int
	x, in, qkv, mixed, out linalg.MatrixOf[float32] // the residual stream, inputs and outputs of products
	gate, up               linalg.MatrixOf[float32]
}

// Next reads the next token of each sequence and returns the logits of the token after it, [sequences, vocabulary].
// caches are those of [model.Language.CacheDims]; Next adds what later tokens need of this one. A nil quantizer leaves
// activations unquantized.
func (n *Network) Next(tokens []int32, at Place, caches [][]float32, quantize Quantizer) ([]float32, error) {
	if err := n.check(tokens, at, caches); err != nil {
		return nil, err
	}
	if len(n.cos) < at.Length*n.s.HeadSize/2 {
		n.cos, n.sin = n.s.Turns(at.Length)
	}
	matrix := func(cols int) linalg.MatrixOf[float32] {
		return linalg.RowMajor(make([]float32, len(tokens)*cols), len(tokens), cols)
	}
	s, heads := n.s, n.s.Heads*n.s.HeadSize
	t := newTeam(n.threads)
	defer t.dismiss()
	r := &step{Network: n, at: at, quantize: quantize, team: t, rows: len(tokens), x: matrix(s.Width), in: matrix(s.Width), mixed: matrix(heads), out: matrix(s.Width),
		qkv: matrix(heads + 2*s.KVHeads*s.HeadSize), gate: matrix(s.Hidden), up: matrix(s.Hidden)}
	for i, id := range tokens {
		id := min(max(int(id), 0), s.Vocab-1)
		copy(r.x.Data[i*s.Width:][:s.Width], n.rows[id*s.Width:])
	}
	for i := range n.blocks {
		if err := r.block(&n.blocks[i], caches[2*i], caches[2*i+1]); err != nil {
			return nil, err
		}
	}
	r.normalize(r.in, r.x, n.norm)
	logits := matrix(s.Vocab)
	r.team.linear(logits, r.in, n.head)
	return logits.Data, nil
}

func (n *Network) check(tokens []int32, at Place, caches [][]float32) error {
	if len(tokens) == 0 || len(at.First) != len(tokens) || at.Start < 0 || at.Start >= at.Length {
		return fmt.Errorf("decode: %d tokens of %d sequences at place %d of %d", len(tokens), len(at.First), at.Start, at.Length)
	}
	for i, first := range at.First {
		if first < 0 || int(first) > at.Start {
			return fmt.Errorf("decode: sequence %d begins at place %d: want one from 0 to %d", i, first, at.Start)
		}
	}
	want := len(tokens) * n.s.KVHeads * at.Length * n.s.HeadSize
	if len(caches) != 2*len(n.blocks) {
		return fmt.Errorf("decode: %d caches, want %d", len(caches), 2*len(n.blocks))
	}
	for _, c := range caches {
		if len(c) != want {
			return fmt.Errorf("decode: a cache of %d elements, want %d", len(c), want)
		}
	}
	return nil
}

// Inputs of a block, in the order of its sites.
const (
	siteQKV = iota
	siteOut
	siteFeedForward
	siteDown
)

// block computes a block: norms are in front of its layers, or behind them where there are norms of all queries and keys.
func (r *step) block(b *block, keys, values []float32) error {
	behind := r.normsBehind()
	if err := r.input(b, siteQKV, b.attentionNorm, behind); err != nil {
		return err
	}
	r.team.linear(r.qkv, r.in, b.qkv)
	r.attention(b, keys, values)
	if err := r.quantized(b, siteOut, r.mixed); err != nil {
		return err
	}
	r.team.linear(r.out, r.mixed, b.out)
	r.add(b.attentionNorm, behind)

	if err := r.input(b, siteFeedForward, b.feedForwardNorm, behind); err != nil {
		return err
	}
	r.team.each(r.s.Hidden, b.w1.part(), func(from, to int) {
		b.w1.times(r.gate, r.in, from, to)
		b.w2.times(r.up, r.in, from, to)
		for i := range r.rows {
			vecmath.SwiGLU(r.gate.Data[i*r.s.Hidden:][from:to], r.up.Data[i*r.s.Hidden:][from:to])
		}
	})
	if err := r.quantized(b, siteDown, r.gate); err != nil {
		return err
	}
	r.team.linear(r.out, r.gate, b.down)
	r.add(b.feedForwardNorm, behind)
	return nil
}

// input makes the input of a layer from the residual stream.
func (r *step) input(b *block, site int, norm []float32, behind bool) error {
	if behind {
		copy(r.in.Data, r.x.Data)
	} else {
		r.normalize(r.in, r.x, norm)
	}
	return r.quantized(b, site, r.in)
}

// add adds the output of a layer to the residual stream.
func (r *step) add(norm []float32, behind bool) {
	if behind {
		r.normalize(r.out, r.out, norm)
	}
	for i, v := range r.out.Data {
		r.x.Data[i] += v
	}
}

// quantized quantizes an activation in place.
func (r *step) quantized(b *block, site int, x linalg.MatrixOf[float32]) error {
	if r.quantize == nil {
		return nil
	}
	return r.quantize(b.sites[site], x.Data)
}
