package huggingface

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/vfs"
)

// A Mapping is a tensor of a Hugging Face checkpoint and the rows of a parameter that it stores.
type Mapping struct {
	Tensor string
	Param  architecture.Param
	Rows   []int // rows of the parameter, in the order of the tensor's rows
	// the first columns of them that the tensor has; 0: all
	Columns int
}

// Layout lists the tensors of a model, in the order of its parameters.
func Layout(s architecture.Settings) ([]Mapping, error) {
	f, err := familyOf(s.Kind)
	if err != nil {
		return nil, err
	}
	return f.layout(s)
}

func (f family) layout(s architecture.Settings) ([]Mapping, error) {
	s.FillIn()
	var list []Mapping
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
		row := 0
		for i, from := range sources {
			end := p.Dims[0]
			if p.Parts != nil {
				end = row + p.Parts[i].Rows
			}
			m := Mapping{Tensor: strings.Replace(from.tensor, "*", block, 1), Param: p,
				Rows: lists.Make(end-row, func(r int) int { return row + r })}
			row = end
			if from.rotary {
				m.Rows = architecture.Reorder(m.Rows, s.HeadSize, s.RopePairs, architecture.HalfSplit)
			}
			list = append(list, m)
		}
	}
	return list, nil
}

// Values reads a parameter of the model and returns its elements as float32. NaN and infinite
// values are reported by [Checkpoint.Err].
func (c *Checkpoint) Values(param string) ([]float32, error) {
	list, ok := c.mappings[param]
	if !ok {
		return nil, fmt.Errorf("%s: there is no parameter %s", c.path, param)
	}
	values := make([]float32, list[0].Param.Size())
	for _, p := range list {
		if err := c.read(p, values); err != nil {
			return nil, err
		}
	}
	if c.headIsCopy && param == "embedding" {
		head := make([]float32, len(values))
		of := list[0]
		of.Tensor = headTensor
		if err := c.read(of, head); err != nil {
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

// read copies the rows of a tensor to values, the elements of its parameter.
func (c *Checkpoint) read(m Mapping, values []float32) error {
	var stored []float32
	t, err := c.tensors.Tensor(m.Tensor)
	if err == nil {
		stored, err = safetensors.Floats(t)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.path, err)
	}
	width, nonFinite := len(values)/m.Param.Dims[0], 0
	for i, row := range m.Rows {
		copy(values[row*width:][:width], stored[i*width:])
	}
	for _, x := range stored {
		if x-x != 0 {
			nonFinite++
		}
	}
	if nonFinite > 0 {
		c.note(fmt.Sprintf("tensor %s: %d of %d values are NaN or infinite",
			m.Tensor, nonFinite, len(m.Rows)*width))
	}
	return nil
}

// OpenTensors opens the tensors of the checkpoint in a directory. Matrices that compressed-tensors,
// FP8 or MLX store in few bits are float32: the numbers of their codes, times their scales.
func OpenTensors(dir vfs.Path) (Tensors, error) {
	text, err := dir.Join(ConfigName).ReadFile()
	if err != nil {
		return nil, err
	}
	k, err := newKeys(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir.Join(ConfigName), err)
	}
	p := k.packing()
	files, err := safetensors.OpenShards(dir)
	if err != nil {
		return nil, err
	}
	t, faults := p.unpack(files)
	if faults = append(k.faults, faults...); len(faults) > 0 {
		return nil, errors.Join(&Error{Path: dir.Name, Faults: faults}, files.Close())
	}
	return t, nil
}
