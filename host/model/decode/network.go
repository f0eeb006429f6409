// Package decode computes the next token of sequences on the CPU, without a graph. Decoding one
// token of a few sequences needs little arithmetic, but reads all weights. Here all cores together
// read each weight once, in memory order, and read and write nothing else of that size.
//
// [model.Language.Decode] defines the results. It is used to prefill prompts, and for all decoding
// on other devices. Both use the same KV caches, and tests compare the two.
package decode

import (
	"fmt"
	"math"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/linalg"
	"github.com/cage-qat/cage/internal/lists"
)

// A Quantizer replaces an activation x, [rows, width of the site], by its quantized form, as the
// site's quantizer does in training.
type Quantizer func(site model.ActivationSite, x []float32) error

// Network is a model with its parameters. It computes one step at a time.
type Network struct {
	s        architecture.Settings
	parallel engine.Parallel
	rounds   bool      // products round their operands to bfloat16
	rows     []float32 // the embedding, [vocabulary, width]
	blocks   []block
	norm     []float32
	head     matrix
	sites    map[string]model.ActivationSite // by name
	length   int                             // number of positions that angles holds
	angles   map[[2]float64]angles           // by the positions of layers
}

// angles are those of rotary positions, [positions, size/2].
type angles struct{ cos, sin []float32 }

// block holds the parameters of a block; parameters that the architecture does not have are nil.
type block struct {
	prefix             string     // of the names of sites
	rope               [2]float64 // RopeKey of the layer
	window             int        // tokens that attention reads; 0: all
	attentionNorm      []float32  // before the layer
	attentionPost      []float32  // after it
	qkv, out           matrix
	qkvBias            []float32
	queryNorm, keyNorm []float32
	feedForwardNorm    []float32
	feedForwardPost    []float32
	w1, w2, down       matrix
}

// matrix is a weight [out, in], stored in bfloat16 if that is lossless.
type matrix struct {
	full   linalg.MatrixOf[float32]
	halves linalg.Halves
	rounds bool // a product rounds both operands to bfloat16
}

// Options configure the computation of a network.
type Options struct {
	Parallel engine.Parallel // nil: everything is computed on the calling goroutine
	// Halves keeps copies in bfloat16 of those weights whose elements are all exact in bfloat16, as
	// in most published models, and reads these copies, if the processor has instructions for that.
	// Each step then reads half the memory, with the same results.
	Halves bool
	// BFloat16 computes as graphs in that precision do: products round their operands to bfloat16
	// and sum in float32. Weights are then also kept in half the memory, if the processor has
	// instructions for that.
	BFloat16 bool
	// Exact reports whether products with a weight are not rounded under BFloat16, as for weights
	// that are multiplied as codes; nil means that all are rounded.
	Exact func(weight string) bool
}

// New returns a network for the model, with the elements of its parameters by name in weights,
// which the caller must not change afterwards.
func New(m model.Language, weights map[string][]float32, o Options) (*Network, error) {
	s := m.Network()
	n := &Network{s: s, parallel: o.Parallel, rounds: o.BFloat16,
		sites: map[string]model.ActivationSite{}}
	if n.parallel == nil {
		n.parallel = func(calls int, f func(i int)) {
			for i := range calls {
				f(i)
			}
		}
	}
	for _, p := range m.Params() {
		if have := len(weights[p.Name]); have != p.Size() {
			return nil, fmt.Errorf("decode: parameter %s has %d elements, want %d", p.Name, have, p.Size())
		}
	}
	named := func(name string, out, in int) matrix {
		return matrix{full: linalg.RowMajor(weights[name], out, in), rounds: o.BFloat16 &&
			(o.Exact == nil || !o.Exact(name))}
	}
	for _, site := range m.ActivationSites(1, 1) {
		n.sites[site.Name] = site
	}
	gain := func(name string) []float32 {
		if s.NormOffset() == 0 {
			return weights[name]
		}
		return lists.Map(weights[name], func(w float32) float32 { return w + float32(s.NormOffset()) })
	}
	for layer := range s.Layers {
		prefix := architecture.LayerPrefix(layer)
		b := block{
			prefix:          prefix,
			rope:            s.LayerRope(layer).RopeKey(),
			window:          s.LayerWindow(layer, math.MaxInt),
			attentionNorm:   gain(prefix + "attn_norm"),
			qkv:             named(prefix+"attn.qkv", s.QueryWidth()+2*s.KeyWidth(), s.Width),
			qkvBias:         weights[prefix+"attn.qkv_bias"],
			queryNorm:       gain(prefix + "attn.q_norm"),
			keyNorm:         gain(prefix + "attn.k_norm"),
			out:             named(prefix+"attn.out", s.Width, s.QueryWidth()),
			feedForwardNorm: gain(prefix + "mlp_norm"),
			attentionPost:   gain(prefix + "attn_post_norm"),
			feedForwardPost: gain(prefix + "mlp_post_norm"),
			w1:              named(prefix+"mlp.w1", s.Hidden, s.Width),
			w2:              named(prefix+"mlp.w2", s.Hidden, s.Width),
			down:            named(prefix+"mlp.down", s.Width, s.Hidden),
		}
		if s.PostNorm() {
			b.attentionPost, b.attentionNorm = b.attentionNorm, nil
			b.feedForwardPost, b.feedForwardNorm = b.feedForwardNorm, nil
		}
		n.blocks = append(n.blocks, b)
	}
	n.rows = weights["embedding"]
	n.norm = lists.Map(gain("norm"), func(w float32) float32 { return w * float32(s.LogitScale()) })
	head := "head"
	if s.Tied() {
		head = "embedding"
	}
	n.head = named(head, s.Vocab, s.Width)
	n.convert(o.Halves && linalg.ReadsHalves())
	return n, nil
}

// convert rounds the weights of rounded products and, if halve is set, stores others in bfloat16
// where that is lossless.
func (n *Network) convert(halve bool) {
	all := []*matrix{&n.head}
	for i := range n.blocks {
		b := &n.blocks[i]
		all = append(all, &b.qkv, &b.out, &b.w1, &b.w2, &b.down)
	}
	n.parallel(len(all), func(i int) {
		m := all[i]
		rows, cols := m.full.Rows, m.full.Cols
		switch {
		case m.rounds && linalg.ReadsHalves():
			m.halves = linalg.Halves{Rows: rows, Cols: cols, Data: make([]uint16, rows*cols)}
			loops.ToBFloat16(m.halves.Data, m.full.Data)
		case m.rounds:
			rounded := make([]float32, rows*cols) // the weight itself must not change
			loops.RoundToBFloat16(rounded, m.full.Data)
			m.full.Data = rounded
		case halve:
			m.halves, _ = linalg.Halve(m.full.Data, rows, cols)
		}
	})
}

// eachRows calls do in parallel with ranges of rows that cover w. A range is large enough to be
// read from memory at full speed, and small enough that all goroutines finish at about the same
// time.
func (n *Network) eachRows(w matrix, do func(from, to int)) {
	const elements = 1 << 14
	rows := max(1, elements/max(1, w.full.Cols)/8) * 8
	n.parallel((w.full.Rows+rows-1)/rows, func(i int) {
		do(i*rows, min((i+1)*rows, w.full.Rows))
	})
}

// times computes columns [from, to) of y = x·wᵀ.
func (m matrix) times(y, x linalg.MatrixOf[float32], from, to int) {
	y.Data, y.Cols = y.Data[from:], to-from
	if m.halves.Data != nil {
		linalg.FewTimesHalves(y, x, m.halves.Part(from, to))
		return
	}
	linalg.FewTimes(y, x, m.full.Part(from, to))
}
