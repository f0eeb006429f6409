package step

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/compute/matmul"
	"github.com/cage-qat/cage/host/compute/plan"
	"github.com/cage-qat/cage/host/compute/update"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/generate"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/internal/linalg"
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
	d.t[network.First] = b
	for _, name := range cacheNames(language) {
		d.t[name], err = engine.Zeros(e.c.dev, language.CacheDims(len(first), length)...)
		if err != nil {
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
	if n == 1 && c.dev.Fuses() {
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
	if in[network.Tokens], err = engine.Upload(c.dev, tokens, len(d.first), n); err != nil {
		return nil, err
	}
	if in[network.Start], err = engine.Upload(c.dev, []int32{int32(d.start)}); err != nil {
		return nil, err
	}
	if err := exec.Run(d.t, d.e.t, in); err != nil {
		return nil, err
	}
	d.start += n
	logits := d.t[network.Logits]
	delete(d.t, network.Logits)
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
		engine.Spec{Name: network.Tokens, Shape: shapes.Make(dtypes.Int32, sequences, n)},
		engine.Spec{Name: network.Start, Shape: shapes.Make(dtypes.Int32)},
		engine.Spec{Name: network.First, Shape: shapes.Make(dtypes.Int32, sequences)})
	language := p.Model.(model.Language) // Decoder accepts no other model
	for _, name := range cacheNames(language) {
		shape := floatShape(language.CacheDims(sequences, length)...)
		specs = append(specs, engine.Spec{Name: name, Shape: shape, Donated: true})
	}
	of := p.piecePass(sequences, n, length)
	p.addQuantizers(&of, p.Pieces[sequences*n], false)
	return p.modelStage("decode", &of, specs)
}

// piecePass returns the program that reads n tokens of each of some sequences, with caches of
// this length.
func (p *Plan) piecePass(sequences, n, length int) pass {
	of := p.batchPass(false)
	of.Shape = network.Shape{Task: network.Decode, Batch: sequences, Context: n, Cache: length}
	of.tensors[network.Projection] = p.forwardName(false)(p.Model.(model.Language).Head())
	return of
}

func cacheNames(m model.Language) (names []string) {
	for layer := range m.Blocks() {
		names = append(names, network.CacheOf(layer)...)
	}
	return names
}

// reader is a plan that reads a token of each of some sequences.
type reader struct {
	*plan.Plan
	pass
}

// reader returns the plan for a number of sequences and a length of caches, which it keeps.
func (e *Evaluator) reader(sequences, length int) (reader, error) {
	key := [2]int{sequences, length}
	if r, ok := e.readers[key]; ok {
		return r, nil
	}
	c, p := e.c, e.c.evaluationPlan
	of := p.piecePass(sequences, 1, length)
	p.addQuantizers(&of, p.Pieces[sequences], false)
	arithmetic := matmul.Float32
	if c.dev.Precision() == device.BFloat16 {
		arithmetic = matmul.BFloat16
	}
	compiled, err := p.Model.(model.Language).Plan(of.Pass, arithmetic)
	if err == nil {
		e.readers[key] = reader{compiled, of}
	}
	return e.readers[key], err
}

// nextToken reads a token of each sequence without a graph, and changes the caches in place.
func (d *Decoder) nextToken(tokens []int32) (logits []float32, err error) {
	e, start := d.e, []int32{int32(d.start)}
	r, err := e.reader(len(d.first), d.length)
	if err != nil {
		return nil, err
	}
	p := e.c.evaluationPlan
	logits = make([]float32, len(tokens)*p.Model.(model.Language).Network().Vocab)
	memory := func(name string, halves bool) (any, error) {
		switch tensor := r.tensor(name); tensor {
		case network.Tokens:
			return tokens, nil
		case network.Start:
			return start, nil
		case network.First:
			return d.first, nil
		case network.Logits:
			return logits, nil
		default:
			if d.t[tensor] != nil {
				return engine.Data[float32](d.t[tensor])
			}
			return e.memory(tensor, halves)
		}
	}
	var in, out []any
	for i, input := range r.Inputs() {
		x, err := memory(input.Name, r.ReadsHalves(i))
		if err != nil {
			return nil, err
		}
		in = append(in, x)
	}
	for _, name := range r.OutputNames() {
		x, err := memory(name, false)
		if err != nil {
			return nil, err
		}
		out = append(out, x)
	}
	if err = r.Run(in, out, e.c.dev.Parallel); err == nil {
		d.start++
	}
	return logits, err
}

// memory returns the elements of a tensor, which it keeps. With halves they may be in bfloat16, if
// products round them to it or if none is changed by that: reading them takes half the time.
func (e *Evaluator) memory(tensor string, halves bool) (made any, err error) {
	key := fmt.Sprint(tensor, " ", halves)
	if made := e.kept[key]; made != nil {
		return made, nil
	}
	b := e.t[tensor]
	if b != nil && b.Shape().DType == dtypes.Int8 && strings.HasPrefix(tensor, codesPrefix) {
		return engine.Data[int8](b)
	}
	values, err := update.View(b)
	if err != nil {
		return nil, err
	}
	made = values
	rounds := e.c.dev.Precision() == device.BFloat16
	inParts := func(f func(from, to int)) { // all cores read the memory
		const each = 1 << 20
		e.c.dev.Parallel((len(values)+each-1)/each, func(i int) {
			f(i*each, min((i+1)*each, len(values)))
		})
	}
	switch {
	case !halves:
	case rounds && linalg.ReadsHalves():
		short := make([]uint16, len(values))
		inParts(func(from, to int) { loops.ToBFloat16(short[from:to], values[from:to]) })
		made = short
	case rounds:
		rounded := make([]float32, len(values)) // the weight itself must not change
		inParts(func(from, to int) { loops.RoundToBFloat16(rounded[from:to], values[from:to]) })
		made = rounded
	case linalg.ReadsHalves():
		if lossless, ok := linalg.Halve(values, 1, len(values)); ok {
			made = lossless.Data
		}
	}
	e.kept[key] = made
	return made, nil
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
