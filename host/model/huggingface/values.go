package huggingface

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/halffloat"
)

// maxKept bounds the reused buffers, in elements. The few larger parameters, the embedding and the
// head, get temporary memory of their own.
const maxKept = 1 << 22

// Values reads a parameter of the model and returns its elements as float32. They are valid until
// the next call, which reuses the memory. Non-finite numbers are counted, see [Checkpoint.Err].
func (c *Checkpoint) Values(param string) ([]float32, error) {
	b, ok := c.bindings[param]
	if !ok {
		return nil, fmt.Errorf("%s: there is no parameter %s", c.dir, param)
	}
	n := b.param.Size()
	var values []float32
	if n > maxKept {
		values = make([]float32, n)
	} else {
		c.buffer = slices.Grow(c.buffer[:0], n)[:n]
		values = c.buffer
	}
	rest := values
	for _, p := range b.pieces {
		rows, wild := rest[:p.size()], 0
		rest = rest[p.size():]
		to := rows
		err := c.eachPart(p.tensor, func(part []float32) {
			for _, x := range part {
				if x-x != 0 {
					wild++
				}
			}
			to = to[copy(to, part):]
		})
		if err != nil {
			return nil, err
		}
		if wild > 0 {
			c.note(fmt.Sprintf("tensor %s: %d of %d values are NaN or infinite", p.tensor, wild, len(rows)))
		}
		if p.rotary && c.Config.Settings.RopePairs == architecture.Interleaved {
			interleave(rows, c.Config.Settings.HeadSize, len(rows)/p.dims[0])
		}
	}
	if c.headIsCopy && param == embeddingParam {
		differ, with := 0, values
		err := c.eachPart(headTensor, func(part []float32) {
			for i, x := range part {
				if math.Float32bits(x) != math.Float32bits(with[i]) {
					differ++
				}
			}
			with = with[len(part):]
		})
		if err != nil {
			return nil, err
		}
		if differ > 0 {
			c.note(fmt.Sprintf("tensor %s: %d values differ from the embedding, but config.json says "+
				"tie_word_embeddings", headTensor, differ))
		}
	}
	return values, nil
}

// embeddingParam is the parameter that is also a tied head.
const embeddingParam = "embedding"

// eachPart calls a function with consecutive parts of a tensor's elements.
func (c *Checkpoint) eachPart(tensor string, f func(part []float32)) error {
	t, err := c.shards.Tensor(tensor)
	if err != nil {
		return fmt.Errorf("%s: %w", c.dir, err)
	}
	return t.Write(&decoder{dtype: t.DType, f: f})
}

// decoder widens the tensor elements written to it.
type decoder struct {
	dtype safetensors.DType
	part  []float32
	f     func(part []float32)
}

func (d *decoder) Write(data []byte) (int, error) {
	n := len(data) * 8 / d.dtype.Bits()
	d.part = slices.Grow(d.part[:0], n)[:n]
	if err := widen(d.dtype, data, d.part); err != nil {
		return 0, err
	}
	d.f(d.part)
	return len(data), nil
}

// widen decodes elements of a type to float32, which is exact.
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

// interleave reorders the rows of heads of the given size, width elements each, from half-split
// pairs, the rotary layout on the Hugging Face Hub, to interleaved pairs.
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

// A binding is a parameter of a model with the tensors that hold it, stacked vertically.
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

func (f family) bind(s architecture.Settings) ([]binding, error) {
	var list []binding
	for _, p := range s.Params() {
		pattern, block := p.Name, ""
		if rest, ok := strings.CutPrefix(p.Name, "layers."); ok {
			block, rest, _ = strings.Cut(rest, ".")
			pattern = "layers.*." + rest
		}
		sources := f.tensors[pattern]
		if len(sources) != max(1, len(p.Parts)) {
			return nil, fmt.Errorf("%s: %s has no tensor for the parameter %s", s.Kind, f.architecture,
				p.Name)
		}
		b := binding{param: p}
		for i, from := range sources {
			dims := p.Dims
			if p.Parts != nil {
				dims = []int{p.Parts[i].Rows, p.Dims[1]}
			}
			b.pieces = append(b.pieces, piece{strings.Replace(from.tensor, "*", block, 1), dims,
				from.rotary})
		}
		list = append(list, b)
	}
	return list, nil
}

func (p piece) size() int {
	n := 1
	for _, d := range p.dims {
		n *= d
	}
	return n
}
