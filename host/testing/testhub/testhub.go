// Package testhub writes checkpoints in the layout of the Hugging Face Hub. It is for tests; real
// exports are written by host/deploy/export.
package testhub

import (
	"encoding/binary"
	"io"
	"math"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/halffloat"
	"github.com/cage-qat/cage/internal/vfs"
)

// Write writes a checkpoint into dir, with weights of type F32, BF16 or F16 in files that contain
// at most limit bytes of data (0 means safetensors.ShardSize). values returns the elements of the
// named parameter; Write does not modify them.
func Write(t testing.TB, dir string, c *huggingface.Config, dtype safetensors.DType, limit int64,
	values func(param string) ([]float32, error)) {
	t.Helper()
	places, err := huggingface.Layout(c.Settings)
	if err != nil {
		t.Fatal(err)
	}
	var tensors []safetensors.Tensor
	for _, p := range places {
		shape := slices.Clone(p.Param.Dims)
		shape[0] = len(p.Rows)
		tensors = append(tensors, safetensors.Tensor{Name: p.Tensor, DType: dtype, Shape: shape,
			Write: func(w io.Writer) error {
				all, err := values(p.Param.Name)
				if err != nil {
					return err
				}
				columns := p.Param.Size() / p.Param.Dims[0]
				for _, r := range p.Rows {
					if _, err := w.Write(encode(dtype, all[r*columns:(r+1)*columns])); err != nil {
						return err
					}
				}
				return nil
			}})
	}
	if err := vfs.At(dir).MkdirAll(); err != nil {
		t.Fatal(err)
	}
	if err := safetensors.WriteShards(t.Context(), vfs.At(dir), tensors,
		map[string]string{"format": "pt"}, limit); err != nil {
		t.Fatal(err)
	}
	d, err := c.Describe()
	if err != nil {
		t.Fatal(err)
	}
	text, err := huggingface.Stored(d.Config, dtype, nil)
	if err == nil {
		err = atomicfile.WriteBytes(vfs.At(dir).Join(huggingface.ConfigName), text)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func encode(dtype safetensors.DType, values []float32) (data []byte) {
	for _, v := range values {
		switch dtype {
		case safetensors.F32:
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		case safetensors.BF16:
			data = binary.LittleEndian.AppendUint16(data, halffloat.ToBFloat16(v))
		case safetensors.F16:
			data = binary.LittleEndian.AppendUint16(data, halffloat.ToHalf(v))
		}
	}
	return data
}
