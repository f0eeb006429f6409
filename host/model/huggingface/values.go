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

// Values reads a parameter of the model and returns its elements as float32. Non-finite numbers are
// counted, see [Checkpoint.Err].
func (c *Checkpoint) Values(param string) ([]float32, error) {
	b, ok := c.bindings[param]
	if !ok {
		return nil, fmt.Errorf("%s: there is no parameter %s", c.path, param)
	}
	var values []float32
	for _, p := range b.pieces {
		rows, err := c.read(p.tensor)
		if err != nil {
			return nil, err
		}
		wild := 0
		for _, x := range rows {
			if x-x != 0 {
				wild++
			}
		}
		if wild > 0 {
			c.note(fmt.Sprintf("tensor %s: %d of %d values are NaN or infinite", p.tensor, wild, len(rows)))
		}
		if p.rotary && c.Config.Settings.RopePairs == architecture.Interleaved {
			interleave(rows, c.Config.Settings.HeadSize, len(rows)/p.dims[0])
		}
		if len(b.pieces) == 1 {
			values = rows
		} else {
			values = append(values, rows...)
		}
	}
	if c.headIsCopy && param == embeddingParam {
		head, err := c.read(headTensor)
		if err != nil {
			return nil, err
		}
		differ := 0
		for i, x := range head {
			if math.Float32bits(x) != math.Float32bits(values[i]) {
				differ++
			}
		}
		if differ > 0 {
			c.note(fmt.Sprintf("tensor %s: %d values differ from the embedding, "+
				"but config.json says tie_word_embeddings", headTensor, differ))
		}
	}
	return values, nil
}

// embeddingParam is the parameter that is also a tied head.
const embeddingParam = "embedding"

func (c *Checkpoint) read(tensor string) ([]float32, error) {
	values, err := c.tensors.Values(tensor)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.path, err)
	}
	return values, nil
}

// shards are the tensors of a directory.
type shards struct{ *safetensors.Shards }

func (s shards) Values(name string) ([]float32, error) {
	t, err := s.Tensor(name)
	if err != nil {
		return nil, err
	}
	data, err := t.Bytes()
	if err != nil {
		return nil, err
	}
	return widen(t.DType, data)
}

// widen converts elements of a type to float32, which is exact.
func widen(dtype safetensors.DType, data []byte) ([]float32, error) {
	values := make([]float32, len(data)*8/max(1, dtype.Bits()))
	for i := range values {
		switch dtype {
		case safetensors.F32:
			values[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		case safetensors.BF16:
			values[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(data[2*i:])) << 16)
		case safetensors.F16:
			values[i] = halffloat.FromHalf(binary.LittleEndian.Uint16(data[2*i:]))
		default:
			return nil, fmt.Errorf("elements of type %s are not read as weights", dtype)
		}
	}
	return values, nil
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
			return nil, fmt.Errorf("%s: %s has no tensor for %s", s.Kind, f.architecture, p.Name)
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
