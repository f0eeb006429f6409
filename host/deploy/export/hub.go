package export

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/deploy/export/readback"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/vfs"
)

// hubFormat is a directory of Hugging Face with plain floats.
type hubFormat struct{}

// hubPlan is a directory of Hugging Face. It implements Plan, for compressed-tensors too.
type hubPlan struct {
	source *source
	float  string
	limit  int64
	stored []Stored
	// files gives the tensors of the files for each of stored.
	files func(t Stored) ([]safetensors.Tensor, error)
	// quantization is the entry quantization_config; nil: none.
	quantization map[string]any
	// fourBitFloats says that a weight is packed in these.
	fourBitFloats bool
}

// floatTypesOfFiles are the float types in safetensors.
var floatTypesOfFiles = map[string]safetensors.DType{floatF32: safetensors.F32, floatBF16: safetensors.BF16, floatF16: safetensors.F16}

func newHubPlan(m *Model, o Options) (*hubPlan, []part, error) {
	float, err := checkFloat(o.Float)
	if err != nil {
		return nil, nil, err
	}
	p := &hubPlan{source: &source{Model: m, latent: o.Latent}, float: float, limit: o.ShardSize}
	p.files = p.plain
	places, err := huggingface.Layout(m.Settings)
	if err != nil {
		return nil, nil, err
	}
	var parts []part
	for _, place := range places {
		parts = append(parts, part{place.Tensor, place.Param, place.Rows})
	}
	return p, parts, nil
}

// Plan implements Format.
func (hubFormat) Plan(m *Model, o Options) (Plan, error) {
	if o.Type != "" {
		return nil, fmt.Errorf("--type %s: the format hf has plain floats, which --dtype chooses", o.Type)
	}
	p, parts, err := newHubPlan(m, o)
	if err != nil {
		return nil, err
	}
	var refused refusals
	for _, part := range parts {
		w, err := p.source.weight(part.param)
		if err == nil {
			err = checkFits(p.float, w.values)
		}
		if err == nil && w.quantized && !o.Inexact && !holds(p.float, w.values) {
			err = fmt.Errorf("its numbers are not all %s", p.float)
		}
		if err != nil {
			refused.add(part.name, err)
			continue
		}
		p.stored = append(p.stored, p.storedPlain(part, w.quantized))
	}
	return p, refused.err("--dtype f32 stores the numbers of Q(x) as they are")
}

// storedPlain describes a tensor of plain floats.
func (p *hubPlan) storedPlain(part part, quantized bool) Stored {
	return Stored{Name: part.name, Param: part.param.Name, Type: strings.ToUpper(p.float), Shape: part.shape(), Quantized: quantized,
		Bytes: int64(len(part.rows)) * int64(part.columns()) * int64(floatTypesOfFiles[p.float].Bits()/8), part: part}
}

// plain is the tensor of plain floats.
func (p *hubPlan) plain(t Stored) ([]safetensors.Tensor, error) {
	return []safetensors.Tensor{{Name: t.Name, DType: floatTypesOfFiles[p.float], Shape: t.Shape, Write: func(out io.Writer) error {
		w, err := p.source.weight(t.part.param)
		if err != nil {
			return err
		}
		return writeFloats(out, p.float, pick(t.part, w.values, t.part.columns()))
	}}}, nil
}

// Tensors implements Plan.
func (p *hubPlan) Tensors() []Stored { return slices.Clone(p.stored) }

// Notes implements Plan.
func (p *hubPlan) Notes() []string { return nil }

// Write implements Plan.
func (p *hubPlan) Write(ctx context.Context, dir vfs.Path) error {
	var tensors []safetensors.Tensor
	for _, t := range p.stored {
		list, err := p.files(t)
		if err != nil {
			return err
		}
		tensors = append(tensors, list...)
	}
	// Older versions of transformers refuse files without the entry.
	err := safetensors.WriteShards(ctx, dir, tensors, map[string]string{"format": "pt"}, p.limit)
	err = errors.Join(err, p.writeConfig(dir), p.writeGeneration(dir))
	for name, content := range p.source.Tokenizer.Files {
		err = errors.Join(err, atomicfile.WriteBytes(dir.Join(name), content))
	}
	return err
}

// writeConfig writes config.json.
func (p *hubPlan) writeConfig(dir vfs.Path) error {
	t := p.source.Tokenizer
	c := huggingface.Config{Settings: p.source.Settings, MaxPositions: p.source.Settings.Context,
		Tokens: huggingface.Tokens{Begin: idList(t.BOS), End: t.EOS, Pad: idList(t.Pad)}}
	text, err := c.Encode(floatTypesOfFiles[p.float])
	if err == nil && p.quantization != nil {
		var entries map[string]any
		if err = plainjson.Unmarshal(text, &entries); err != nil {
			return err
		}
		entries["quantization_config"] = p.quantization
		if p.fourBitFloats { // compressed-tensors makes bfloat16 of them, whatever the rest is: all is of one type then
			entries["torch_dtype"] = "bfloat16"
		}
		return atomicfile.WriteJSON(dir.Join(huggingface.ConfigName), entries)
	}
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(dir.Join(huggingface.ConfigName), text)
}

func idList(id int32) []int32 {
	if id < 0 {
		return nil
	}
	return []int32{id}
}

// writeGeneration writes generation_config.json: where a text begins and ends.
func (p *hubPlan) writeGeneration(dir vfs.Path) error {
	t := p.source.Tokenizer
	entries := map[string]any{"do_sample": true}
	if t.BOS >= 0 {
		entries["bos_token_id"] = t.BOS
	}
	if len(t.EOS) == 1 {
		entries["eos_token_id"] = t.EOS[0]
	} else if len(t.EOS) > 1 {
		entries["eos_token_id"] = t.EOS
	}
	if t.Pad >= 0 {
		entries["pad_token_id"] = t.Pad
	}
	return atomicfile.WriteJSON(dir.Join(tokenizer.GenerationFile), entries)
}

// Read implements Plan.
func (p *hubPlan) Read(dir vfs.Path, each func(name string, values []float32) error) error {
	return readback.Directory(dir, each)
}
