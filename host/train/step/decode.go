package step

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/update"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/decode"
	"github.com/cage-qat/cage/host/model/generate"
)

// Decoder continues sequences piece by piece, with the parameters of an evaluator and a KV cache on
// the device. The evaluator must stay open.
type Decoder struct {
	e      *Evaluator
	first  []int32
	length int
	start  int
	t      update.Tensors // caches, and the position at which each sequence begins
}

// Names of a decoder's tensors.
const (
	firstName  = "first"
	startName  = "start"
	logitsName = "logits"
)

func cacheName(i int) string { return fmt.Sprintf("cache/%d", i) }

// Decoder returns a decoder of sequences of at most length tokens. Sequence i begins at position
// first[i] of the tokens passed to [Decoder.Next]; earlier positions are padding.
func (e *Evaluator) Decoder(first []int32, length int) (*Decoder, error) {
	language, ok := e.c.plan.Model.(model.Language)
	if !ok {
		return nil, fmt.Errorf("step: a model that reads no sequences cannot continue them")
	}
	if len(first) == 0 {
		return nil, errors.New("step: a decoder needs at least one sequence")
	}
	d := &Decoder{e: e, first: slices.Clone(first), length: length, t: update.Tensors{}}
	b, err := engine.Upload(e.c.dev, d.first, len(first))
	if err != nil {
		return nil, err
	}
	d.t[firstName] = b
	for i, dims := range language.CacheDims(len(first), length) {
		if d.t[cacheName(i)], err = engine.Zeros(e.c.dev, dims...); err != nil {
			d.Close()
			return nil, err
		}
	}
	return d, nil
}

// Close frees the caches.
func (d *Decoder) Close() {
	finalize(d.t)
}

// Remaining returns the number of tokens that can still be added to each sequence.
func (d *Decoder) Remaining() int { return d.length - d.start }

// Next reads the next n tokens of all sequences, [sequences, n], and returns the logits of the
// token after these, [sequences, vocabulary]. If activations are quantized, the number of tokens,
// sequences·n, must be one of the plan's [Plan.Pieces].
func (d *Decoder) Next(tokens []int32) ([]float32, error) {
	c, n := d.e.c, len(tokens)/len(d.first)
	if n == 0 || n*len(d.first) != len(tokens) || n > d.Remaining() {
		return nil, fmt.Errorf("step: got %d tokens for %d sequences, each of which has a capacity of %d",
			len(tokens), len(d.first), d.Remaining())
	}
	if err := c.evaluationPlan.checkPiece(len(tokens)); err != nil {
		return nil, err
	}
	// On the CPU, a single token is computed faster without a graph, once all sequences have begun.
	if n == 1 && c.dev.SharesMemory() && int(slices.Max(d.first)) <= d.start {
		return d.nextToken(tokens)
	}
	key := fmt.Sprintf("decode %d %d %d", len(d.first), n, d.length)
	exec, err := c.compileOnce(key, func() update.Stage {
		return c.evaluationPlan.decodeStage(len(d.first), n, d.length)
	})
	if err != nil {
		return nil, err
	}
	in := update.Tensors{}
	defer finalize(in)
	if in[tokensName], err = engine.Upload(c.dev, tokens, len(d.first), n); err != nil {
		return nil, err
	}
	if in[startName], err = engine.Upload(c.dev, []int32{int32(d.start)}); err != nil {
		return nil, err
	}
	if err := exec.Run(d.t, d.e.t, in); err != nil {
		return nil, err
	}
	d.start += n
	logits := d.t[logitsName]
	delete(d.t, logitsName)
	defer logits.Finalize()
	return engine.Download[float32](logits)
}

func (p *Plan) checkPiece(tokens int) error {
	if _, ok := p.Pieces[tokens]; !ok && len(p.Activations) > 0 {
		return fmt.Errorf("step: activations are quantized, but there are no quantizers "+
			"for %d tokens at once", tokens)
	}
	return nil
}

func (p *Plan) decodeStage(sequences, n, length int) update.Stage {
	specs := append(p.forwardSpecs(false),
		engine.Spec{Name: tokensName, Shape: shapes.Make(dtypes.Int32, sequences, n)},
		engine.Spec{Name: startName, Shape: shapes.Make(dtypes.Int32)},
		engine.Spec{Name: firstName, Shape: shapes.Make(dtypes.Int32, sequences)})
	language := p.Model.(model.Language) // Decoder accepts no other model
	caches := language.CacheDims(sequences, length)
	for i, dims := range caches {
		specs = append(specs, engine.Spec{Name: cacheName(i), Shape: floatShape(dims...), Donated: true})
	}
	return update.Stage{Name: logitsName, Inputs: specs, Build: func(in update.Nodes) update.Nodes {
		piece := model.Piece{Tokens: in[tokensName], Start: in[startName], First: in[firstName]}
		var have []*graph.Node
		for i := range caches {
			have = append(have, in[cacheName(i)])
		}
		quantize := activationQuantizer(p.Pieces[sequences*n], in)
		logits, next := language.Decode(p.weightNodes(in, false), piece, have, quantize)
		out := update.Nodes{logitsName: logits}
		for i, cache := range next {
			out[cacheName(i)] = cache
		}
		return out
	}}
}

func (d *Decoder) nextToken(tokens []int32) (logits []float32, err error) {
	e := d.e
	c, p := e.c, e.c.evaluationPlan
	if e.decoder == nil {
		weights := map[string][]float32{}
		for _, param := range c.plan.Model.Params() {
			b := e.t[p.forwardName(false)(param.Name)]
			if weights[param.Name], err = update.View(b); err != nil {
				return nil, err
			}
		}
		options := decode.Options{Parallel: c.dev.Parallel, Halves: true,
			BFloat16: c.dev.Precision() == device.BFloat16,
			Exact:    func(weight string) bool { return p.codes[weight] != nil }}
		if e.decoder, err = decode.New(c.plan.Model.(model.Language), weights, options); err != nil {
			return nil, err
		}
	}
	caches := make([][]float32, len(d.t)-1)
	for i := range caches {
		if caches[i], err = engine.Data[float32](d.t[cacheName(i)]); err != nil {
			return nil, err
		}
	}
	var quantize decode.Quantizer
	if len(p.Pieces[len(tokens)]) > 0 {
		quantize = func(site model.ActivationSite, x []float32) error {
			return c.quantizeActivation(e.t, site, len(tokens), x)
		}
	}
	place := decode.Positions{Length: d.length, Start: d.start, First: d.first}
	if logits, err = e.decoder.Next(tokens, place, caches, quantize); err == nil {
		d.start++
	}
	return logits, err
}

// Piece is the number of prompt tokens per sequence that are read at once.
const Piece = 64

// Pieces returns the numbers of tokens that are read at once when this many sequences are
// continued; see [Plan.Pieces].
func Pieces(sequences int) []int {
	if sequences == 0 {
		return nil
	}
	return []int{Piece * sequences, sequences}
}

// Begin reads prompts, as specified by [generate.Model]. It pads them on the left to the same
// number of pieces.
func (e *Evaluator) Begin(prompts [][]int32, length int) (generate.Sequences, []float32, error) {
	longest := 0
	for _, p := range prompts {
		longest = max(longest, len(p))
	}
	padded := (longest + Piece - 1) / Piece * Piece
	first := make([]int32, len(prompts))
	rows := make([][]int32, len(prompts))
	for i, p := range prompts {
		first[i] = int32(padded - len(p))
		rows[i] = slices.Concat(make([]int32, padded-len(p)), p)
	}
	capacity := 2 * Piece // a power of two times Piece, as each size compiles a program
	for capacity < padded+length-longest {
		capacity *= 2
	}
	d, err := e.Decoder(first, capacity)
	if err != nil {
		return nil, nil, err
	}
	var logits []float32
	for at := 0; at < padded; at += Piece {
		var tokens []int32
		for _, row := range rows {
			tokens = append(tokens, row[at:at+Piece]...)
		}
		if logits, err = d.Next(tokens); err != nil {
			d.Close()
			return nil, nil, err
		}
	}
	return d, logits, nil
}
