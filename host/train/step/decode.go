package step

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/host/compute/stage"
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
	t      stage.Tensors // caches, and the position at which each sequence begins
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
	d := &Decoder{e: e, first: slices.Clone(first), length: length, t: stage.Tensors{}}
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
	d.t.Finalize()
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
	exec, err := c.decoder(len(d.first), n, d.length)
	if err != nil {
		return nil, err
	}
	in := stage.Tensors{}
	defer in.Finalize()
	if in[network.Tokens], err = engine.Upload(c.dev, tokens, len(d.first), n); err != nil {
		return nil, err
	}
	if in[network.Start], err = engine.Upload(c.dev, []int32{int32(d.start)}); err != nil {
		return nil, err
	}
	read, err := d.e.read(exec)
	if err != nil {
		return nil, err
	}
	if err := exec.Run(d.t, read, in); err != nil {
		return nil, err
	}
	d.start += n
	logits := d.t[network.Logits]
	delete(d.t, network.Logits)
	defer logits.Finalize()
	return engine.Download[float32](logits)
}

// decoder returns the executable that reads n tokens of each of some sequences, with caches of this
// length.
func (c *Compiled) decoder(sequences, n, length int) (*stage.Executable, error) {
	key := fmt.Sprintf("%s %d %d %d", decodeKey, sequences, n, length)
	return c.compileOnce(key, func() stage.Stage {
		return c.evaluationPlan.decodeStage(sequences, n, length)
	})
}

func (p *Plan) checkPiece(tokens int) error {
	if _, ok := p.Pieces[tokens]; !ok && len(p.Activations) > 0 {
		return fmt.Errorf("step: activations are quantized, but there are no quantizers "+
			"for %d tokens at once", tokens)
	}
	return nil
}

// decodeStage reads n tokens of each of some sequences, with caches of this length.
func (p *Plan) decodeStage(sequences, n, length int) stage.Stage {
	language := p.Model.(model.Language) // Decoder accepts no other model
	of := p.batchProgram(false)
	of.Shape = network.Shape{Task: network.Decode, Batch: sequences, Context: n, Cache: length}
	p.addQuantizers(&of, p.Pieces[sequences*n], false)
	specs, head := p.forwardSpecs(false), p.forwardName(false)(language.Head())
	at := slices.IndexFunc(specs, func(s engine.Spec) bool { return s.Name == head })
	if of.tensors[network.Projection] = head; at >= 0 && p.dev.SharesMemory() {
		projection := specs[at] // in bfloat16 also if it is the embedding, too
		projection.Name = network.Projection
		specs = append(specs, projection)
		delete(of.tensors, network.Projection)
	}
	specs = append(specs,
		engine.Spec{Name: network.Tokens, Shape: shapes.Make(shapes.Int32, sequences, n)},
		engine.Spec{Name: network.Start, Shape: shapes.Make(shapes.Int32)},
		engine.Spec{Name: network.First, Shape: shapes.Make(shapes.Int32, sequences)})
	for _, name := range cacheNames(language) {
		shape := floatShape(language.CacheDims(sequences, length)...)
		specs = append(specs, engine.Spec{Name: name, Shape: shape, Donated: true})
	}
	return p.modelStage("decode", &of, specs)
}

func cacheNames(m model.Language) (names []string) {
	for layer := range m.Network().Layers {
		names = append(names, network.CacheOf(layer)...)
	}
	return names
}

// read returns the evaluator's tensors that an executable reads, in bfloat16 where the executable
// accepts it.
func (e *Evaluator) read(exec *stage.Executable) (list stage.Tensors, err error) {
	if made := e.reads[exec]; made != nil {
		return made, nil
	}
	p := e.c.evaluationPlan
	list = stage.Tensors{}
	for i, in := range exec.Inputs {
		tensor := in.Name
		if tensor == network.Projection {
			tensor = p.forwardName(false)(p.Model.(model.Language).Head())
		}
		if list[in.Name] = e.t[tensor]; list[in.Name] != nil && exec.ReadsBFloat16(i) {
			if list[in.Name], err = e.inBFloat16(tensor); err != nil {
				return nil, err
			}
		}
	}
	e.reads[exec] = list
	return list, nil
}

// inBFloat16 rounds a tensor to bfloat16, and keeps the result, if products do so or no element
// changes: with [linalg.HasBFloat16], reading it takes half the time. Otherwise it returns the
// tensor.
func (e *Evaluator) inBFloat16(tensor string) (made *engine.Buffer, err error) {
	b, dev := e.t[tensor], e.c.dev
	if e.short[tensor] != nil || b.Shape().DType != shapes.Float32 {
		return cmp.Or(e.short[tensor], b), nil
	}
	values, err := engine.Data[float32](b)
	if err != nil {
		return nil, err
	}
	inParts := func(f func(from, to int)) error { // all cores read the memory
		loops.InParts(len(values), 1<<20, dev.Parallel, f)
		return nil
	}
	dims, rounds := b.Shape().Dimensions, dev.Precision() == device.BFloat16
	switch {
	case rounds && linalg.HasBFloat16():
		made, err = engine.FillBFloat16(dev, dims, func(short []uint16) error {
			return inParts(func(from, to int) { loops.ToBFloat16(short[from:to], values[from:to]) })
		})
	case rounds:
		made, err = engine.Fill(dev, dims, func(rounded []float32) error {
			return inParts(func(from, to int) {
				loops.RoundToBFloat16(rounded[from:to], values[from:to])
			})
		})
	case linalg.HasBFloat16():
		lossless, ok := linalg.ToBFloat16(values, 1, len(values))
		if !ok {
			return b, nil
		}
		made, err = engine.FillBFloat16(dev, dims, func(short []uint16) error {
			copy(short, lossless.Data)
			return nil
		})
	default:
		return b, nil
	}
	if err == nil {
		e.short[tensor] = made
	}
	return made, err
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
