package export

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

type hubFormat struct{}

// hubPlan is the plan of a Hugging Face directory, also used for compressed-tensors.
type hubPlan struct {
	source *source
	float  string
	limit  int64
	stored []Stored
	// files returns the tensors that store a tensor of stored.
	files func(t Stored) []safetensors.Tensor
	// quantization is the value of quantization_config; nil: none.
	quantization map[string]any
	// fourBitFloats says that a weight is packed as four-bit floats.
	fourBitFloats bool
}

var floatTypesOfFiles = map[string]safetensors.DType{floatF32: safetensors.F32, floatBF16: safetensors.BF16, floatF16: safetensors.F16}

func newHubPlan(m *Model, o Options) (*hubPlan, []part, error) {
	float, err := checkFloat(o.Float)
	if err != nil {
		return nil, nil, err
	}
	p := &hubPlan{source: &source{Model: m, latent: o.Latent}, float: float, limit: o.ShardSize}
	p.files = p.plain
	parts, err := partsOf(m)
	return p, parts, err
}

// Plan implements Format.
func (hubFormat) Plan(m *Model, o Options) (Plan, error) {
	if o.Type != "" {
		return nil, fmt.Errorf("--type %s: the format hf stores plain floats, whose type is --dtype", o.Type)
	}
	p, parts, err := newHubPlan(m, o)
	if err != nil {
		return nil, err
	}
	var refused refusals
	for _, part := range parts {
		w, err := p.source.weight(part.param)
		if err != nil {
			return nil, err
		}
		if err = checkFits(p.float, w.values); err == nil && w.quantized && !o.Inexact && !holds(p.float, w.values) {
			err = fmt.Errorf("its numbers are not all %s", p.float)
		}
		if err != nil {
			refused.add(part.name, w.quantized, err)
			continue
		}
		p.stored = append(p.stored, p.storedPlain(part, w.quantized))
	}
	return p, refused.err("--dtype f32 stores the numbers of Q(x) as they are")
}

func (p *hubPlan) storedPlain(part part, quantized bool) Stored {
	return Stored{Name: part.name, Param: part.param.Name, Type: strings.ToUpper(p.float), Shape: part.shape(), Quantized: quantized,
		Bytes: int64(len(part.rows)) * int64(part.columns()) * int64(floatTypesOfFiles[p.float].Bits()/8), part: part}
}

func (p *hubPlan) plain(t Stored) []safetensors.Tensor {
	write := func(out io.Writer) error {
		w, err := p.source.weight(t.part.param)
		if err != nil {
			return err
		}
		return writeFloats(out, p.float, pick(t.part, w.values, t.part.columns()))
	}
	dtype := floatTypesOfFiles[p.float]
	return []safetensors.Tensor{{Name: t.Name, DType: dtype, Shape: t.Shape, Write: write}}
}

// Tensors implements Plan.
func (p *hubPlan) Tensors() []Stored { return slices.Clone(p.stored) }

// Notes implements Plan.
func (p *hubPlan) Notes() []string { return nil }

// Write implements Plan.
func (p *hubPlan) Write(ctx context.Context, dir vfs.Path) error {
	var tensors []safetensors.Tensor
	for _, t := range p.stored {
		tensors = append(tensors, p.files(t)...)
	}
	// Older versions of transformers reject files without this metadata.
	if err := safetensors.WriteShards(ctx, dir, tensors, map[string]string{"format": "pt"}, p.limit); err != nil {
		return err
	}
	d, err := p.source.describe()
	if err != nil {
		return err
	}
	dtype := floatTypesOfFiles[p.float]
	if p.fourBitFloats { // compressed-tensors decodes these to bfloat16, so all tensors get that type
		dtype = safetensors.BF16
	}
	if d.Config, err = huggingface.Stored(d.Config, dtype, p.quantization); err != nil {
		return err
	}
	files := maps.Clone(p.source.Tokenizer.Files)
	files[huggingface.ConfigName], files[tokenizer.GenerationFile] = d.Config, d.Generation
	for name, content := range files {
		if content == nil { // the checkpoint has no generation_config.json
			continue
		}
		path := dir.Join(name)
		if err := errors.Join(path.Dir().MkdirAll(), atomicfile.WriteBytes(path, content)); err != nil {
			return err
		}
	}
	return nil
}

// Read implements Plan.
func (p *hubPlan) Read(dir vfs.Path, each func(name string, values []float32) error) error {
	return readDirectory(dir, each)
}
