package huggingface

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/safetensors"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// Read returns the elements of a parameter of a model, by its name. They are not changed.
type Read func(param string) ([]float32, error)

// Write writes a checkpoint into a directory: the weights as elements of a type, in files with at most
// limit bytes of data (0: safetensors.ShardSize), and in the end config.json, without which it is none.
func Write(ctx context.Context, dir vfs.Path, c *Config, dtype safetensors.DType, limit int64, read Read) error {
	tensors, err := Tensors(c.Settings, dtype, read)
	if err != nil {
		return err
	}
	text, err := c.Encode(dtype)
	if err != nil {
		return err
	}
	if err := dir.MkdirAll(); err != nil {
		return err
	}
	// Older versions of transformers refuse files without the entry.
	if err := safetensors.WriteShards(ctx, dir, tensors, map[string]string{"format": "pt"}, limit); err != nil {
		return err
	}
	return atomicfile.WriteBytes(dir.Join(ConfigName), text)
}

// Tensors lists the parameters of a model under the names and in the layout of the hub, as elements of a type. Their values
// are read when the tensors are.
func Tensors(s model.Settings, dtype safetensors.DType, read Read) ([]safetensors.Tensor, error) {
	if !slices.Contains(readable, dtype) {
		return nil, fmt.Errorf("weights are not written as elements of type %s: want F32, BF16 or F16", dtype)
	}
	f, err := familyOf(s.Kind)
	if err != nil {
		return nil, err
	}
	s.FillIn()
	bindings, err := f.bind(s)
	if err != nil {
		return nil, err
	}
	var list []safetensors.Tensor
	for _, b := range bindings {
		at := 0 // of the piece in the parameter
		for _, p := range b.pieces {
			list = append(list, lazy(b.param, p, at, s, dtype, read))
			at += p.size()
		}
	}
	return list, nil
}

// lazy is the tensor of a piece that begins at an element of its parameter.
func lazy(param model.Param, p piece, at int, s model.Settings, dtype safetensors.DType, read Read) safetensors.Tensor {
	return safetensors.Tensor{Name: p.tensor, DType: dtype, Shape: p.dims, Write: func(w io.Writer) error {
		values, err := read(param.Name)
		if err != nil {
			return err
		}
		if len(values) != param.Size() {
			return fmt.Errorf("parameter %s: %d values, want %d", param.Name, len(values), param.Size())
		}
		rows := values[at : at+p.size()]
		if p.turned && s.RopePairs == model.Interleaved {
			rows = slices.Clone(rows)
			halve(rows, s.HeadSize, width(p.dims))
		}
		return writeAs(w, dtype, rows)
	}}
}

// writeAs writes values in pieces.
func writeAs(w io.Writer, dtype safetensors.DType, values []float32) error {
	const chunk = 1 << 14
	var data []byte
	var err error
	for part := range slices.Chunk(values, chunk) {
		if data, err = narrow(dtype, data[:0], part); err != nil {
			return err
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
	}
	return nil
}
