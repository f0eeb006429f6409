package huggingface

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/halffloat"
)

// maxKept bounds the elements of the memory that is used again. The few parameters that are larger,
// the embedding and the head, get memory of their own, which does not stay when they are done with.
const maxKept = 1 << 22

// Values reads a parameter of the model and returns its elements as float32. They are valid until
// the next call, which reuses the memory. Numbers that are not finite are counted, see
// [Checkpoint.Err].
func (c *Checkpoint) Values(param string) ([]float32, error) {
	b, ok := c.bindings[param]
	if !ok {
		return nil, fmt.Errorf("%s: there is no parameter %s", c.dir, param)
	}
	values := c.memory(b.param.Size())
	rest := values
	for _, p := range b.pieces {
		if err := c.readPiece(p, rest[:p.size()]); err != nil {
			return nil, err
		}
		rest = rest[p.size():]
	}
	if c.headIsCopy && param == embeddingParam {
		if err := c.compareHead(values); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// memory is room for n elements.
func (c *Checkpoint) memory(n int) []float32 {
	if n > maxKept {
		return make([]float32, n)
	}
	if cap(c.buffer) < n {
		c.buffer = make([]float32, n)
	}
	return c.buffer[:n]
}

// embeddingParam is the parameter that a tied head shares.
const embeddingParam = "embedding"

func (c *Checkpoint) readPiece(p piece, rows []float32) error {
	t, err := c.shards.Tensor(p.tensor)
	if err != nil {
		return fmt.Errorf("%s: %w", c.dir, err)
	}
	d := &decoder{dtype: t.DType, to: rows}
	if err := t.Write(d); err != nil {
		return err
	}
	if d.wild > 0 {
		c.note(fmt.Sprintf("tensor %s: %d of %d values are NaN or infinite", p.tensor, d.wild, len(rows)))
	}
	if p.rotary && c.Config.Settings.RopePairs == architecture.Interleaved {
		interleave(rows, c.Config.Settings.HeadSize, len(rows)/p.dims[0])
	}
	return nil
}

// decoder widens the elements of a tensor that is written to it.
type decoder struct {
	dtype safetensors.DType
	to    []float32
	wild  int // elements that are not finite
}

// Write decodes elements. Their number has been compared with the shape before.
func (d *decoder) Write(data []byte) (int, error) {
	part := d.to[:len(data)*8/d.dtype.Bits()]
	if err := widen(d.dtype, data, part); err != nil {
		return 0, err
	}
	for _, x := range part {
		if x-x != 0 {
			d.wild++
		}
	}
	d.to = d.to[len(part):]
	return len(data), nil
}

// compareHead compares the matrix of a head that is said to be tied with the embedding.
func (c *Checkpoint) compareHead(embedding []float32) error {
	t, err := c.shards.Tensor(headTensor)
	if err != nil {
		return err
	}
	w := &comparer{dtype: t.DType, with: embedding}
	if err := t.Write(w); err != nil {
		return err
	}
	if w.differ > 0 {
		c.note(fmt.Sprintf("tensor %s: %d values differ from the embedding, but config.json says tie_word_embeddings", headTensor, w.differ))
	}
	return nil
}

// comparer compares the elements of a tensor that is written to it.
type comparer struct {
	dtype  safetensors.DType
	with   []float32
	part   []float32
	differ int
}

func (w *comparer) Write(data []byte) (int, error) {
	n := len(data) * 8 / w.dtype.Bits()
	w.part = append(w.part[:0], make([]float32, n)...)
	if err := widen(w.dtype, data, w.part); err != nil {
		return 0, err
	}
	for i, x := range w.part {
		if math.Float32bits(x) != math.Float32bits(w.with[i]) {
			w.differ++
		}
	}
	w.with = w.with[n:]
	return len(data), nil
}

// widen decodes elements of a type to float32, all of which it holds exactly.
func widen(dtype safetensors.DType, data []byte, to []float32) error {
	switch dtype {
	case safetensors.F32:
		for i := range to {
			to[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		}
	case safetensors.BF16:
		for i := range to {
			to[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(data[2*i:])) << 16)
		}
	case safetensors.F16:
		for i := range to {
			to[i] = halffloat.FromHalf(binary.LittleEndian.Uint16(data[2*i:]))
		}
	default:
		return fmt.Errorf("elements of type %s are not read as weights", dtype)
	}
	return nil
}

// Rotary positions turn pairs of features of a head. The hub keeps them in the two halves of the
// head. Weights become those of another order when the rows that make these features change places.

// interleave brings the rows of heads of the given size, width elements each, from halves to
// interleaved pairs.
func interleave(rows []float32, size, width int) {
	before := make([]float32, size*width)
	for head := rows; len(head) > 0; head = head[len(before):] {
		copy(before, head)
		for i := range size {
			from := architecture.Feature(i, size, architecture.HalfSplit, architecture.Interleaved)
			copy(head[i*width:(i+1)*width], before[from*width:])
		}
	}
}

// A binding is a parameter of a model with the tensors that hold it, whose rows stand one below the
// other.
type binding struct {
	param  architecture.Param
	pieces []piece
}

// A piece is a tensor that holds some rows of a parameter.
type piece struct {
	tensor string
	dims   []int
	rotary bool // see source
}

// bind lists the parameters of a model with their tensors.
func (f family) bind(s architecture.Settings) ([]binding, error) {
	var list []binding
	for _, p := range s.Params() {
		pattern, block := blockPattern(p.Name)
		sources := f.tensors[pattern]
		if len(sources) != max(1, len(p.Parts)) {
			return nil, fmt.Errorf("%s: the parameter %s has no counterpart in the tensors of %s", s.Kind, p.Name, f.architecture)
		}
		b := binding{param: p}
		for i, from := range sources {
			dims := p.Dims
			if p.Parts != nil {
				dims = []int{p.Parts[i].Rows, p.Dims[1]}
			}
			b.pieces = append(b.pieces, piece{strings.Replace(from.tensor, "*", block, 1), dims, from.rotary})
		}
		list = append(list, b)
	}
	return list, nil
}

// blockPattern replaces the number of a block in the name of a parameter by a star, and returns the
// number beside it.
func blockPattern(param string) (pattern, block string) {
	const prefix = "layers."
	rest, ok := strings.CutPrefix(param, prefix)
	if !ok {
		return param, ""
	}
	block, rest, _ = strings.Cut(rest, ".")
	return prefix + "*." + rest, block
}

func (p piece) size() int {
	n := 1
	for _, d := range p.dims {
		n *= d
	}
	return n
}
