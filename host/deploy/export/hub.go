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
	"github.com/cage-qat/cage/sdk/program"
)

// hubPlan plans a Hugging Face directory, plain or in the layout of compressed-tensors.
type hubPlan struct {
	source *source
	float  string // type of plain tensors in Options
	limit  int64
	stored []Stored
	// files returns the tensors in the file that represent t.
	files func(t Stored) []safetensors.Tensor
	// quantization is the value of quantization_config; nil if there is none.
	quantization map[string]any
	// fourBitFloats reports whether a weight is packed as four-bit floats.
	fourBitFloats bool
}

var floatTypesOfFiles = map[string]safetensors.DType{
	floatF32: safetensors.F32, floatBF16: safetensors.BF16, floatF16: safetensors.F16,
}

func newHubPlan(m *Model, o Options) (*hubPlan, []part, error) {
	float, err := checkFloat(o.Float)
	if err != nil {
		return nil, nil, err
	}
	p := &hubPlan{source: &source{Model: m, latent: o.Latent}, float: float, limit: o.ShardSize}
	p.files = p.plain
	parts, err := huggingface.Layout(m.Settings)
	return p, parts, err
}

func planHub(m *Model, o Options) (*Plan, error) {
	if o.Type != "" {
		return nil, fmt.Errorf("--type %s: format hf stores plain floats: choose their type with --dtype",
			o.Type)
	}
	p, parts, err := newHubPlan(m, o)
	if err != nil {
		return nil, err
	}
	p.stored, _, err = p.source.plan(parts, o, layout{
		float:    func(part, weight) string { return p.float },
		unpacked: func(part, weight) error { return nil },
		types:    func(weight) []string { return []string{p.float} },
		check: func(_ part, w weight, typ string) error {
			return checkFloats(typ, w.values, o.Inexact)
		},
		exactHint: "--dtype f32 stores the numbers of Q(x) as they are",
	})
	return p.plan(), err
}

// plan completes the descriptions of plain tensors and returns the plan.
func (p *hubPlan) plan() *Plan {
	for i := range p.stored {
		t := &p.stored[i]
		if dtype, ok := floatTypesOfFiles[t.Type]; ok {
			t.Type = strings.ToUpper(t.Type)
			t.Bytes = program.FloatType(t.Shape...).Size() * int64(dtype.Bits()/8)
		}
	}
	return &Plan{Tensors: slices.Clone(p.stored), Write: p.write, Read: readDirectory}
}

func (p *hubPlan) plain(t Stored) []safetensors.Tensor {
	write := func(out io.Writer) error {
		w, err := p.source.weight(t.part.Param)
		if err != nil {
			return err
		}
		return writeFloats(out, p.float, pick(t.part, w.values))
	}
	dtype := floatTypesOfFiles[p.float]
	return []safetensors.Tensor{{Name: t.Name, DType: dtype, Shape: t.Shape, Write: write}}
}

func (p *hubPlan) write(ctx context.Context, dir vfs.Path) error {
	var tensors []safetensors.Tensor
	for _, t := range p.stored {
		tensors = append(tensors, p.files(t)...)
	}
	// Older versions of transformers reject files without this metadata.
	metadata := map[string]string{"format": "pt"}
	if err := safetensors.WriteShards(ctx, dir, tensors, metadata, p.limit); err != nil {
		return err
	}
	d, err := p.source.describe()
	if err != nil {
		return err
	}
	dtype := floatTypesOfFiles[p.float]
	if p.fourBitFloats { // compressed-tensors decodes these to bfloat16, and all tensors with them
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
