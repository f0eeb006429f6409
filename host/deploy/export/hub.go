package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
	"github.com/cage-qat/cage/sdk/program"
)

// hubPlan plans a Hugging Face directory, plain or in the layout of compressed-tensors or MLX.
type hubPlan struct {
	source *source
	float  string // type of plain tensors in Options
	limit  int64
	stored []Stored
	// packed returns the tensors in the file that represent t, which is packed; nil: all are plain.
	packed func(t Stored) []safetensors.Tensor
	// inputs compares the inputs of a weight's layer with those of a type; nil: they stay as they are.
	inputs func(param, typ string) (inputs, error)
	// entries are those of config.json for packed weights, or for one program.
	entries map[string]any
	// fourBitFloats reports whether a weight is packed as four-bit floats.
	fourBitFloats bool
}

var floatTypesOfFiles = map[string]safetensors.DType{
	floatF32: safetensors.F32, floatBF16: safetensors.BF16, floatF16: safetensors.F16,
}

// newHubPlan begins the plan of a directory for a program. in returns an error if the program does
// not compute such a model.
func newHubPlan(
	m *Model, o Options, in func(architecture.Settings) error,
) (*hubPlan, []part, error) {
	float, err := checkFloat(o.Float)
	if err = cmp.Or(err, in(m.Settings)); err != nil {
		return nil, nil, err
	}
	p := &hubPlan{source: &source{Model: m, latent: o.Latent}, float: float, limit: o.ShardSize}
	parts, err := huggingface.Layout(m.Settings)
	return p, parts, err
}

func planHub(m *Model, o Options) (*Plan, error) {
	if o.Type != "" {
		return nil, fmt.Errorf("--type %s: format hf stores plain floats: choose their type with --dtype",
			o.Type)
	}
	p, parts, err := newHubPlan(m, o, inTransformers)
	if err != nil {
		return nil, err
	}
	p.stored, _, err = p.source.plan(parts, o, layout{
		float:    func(part, weight) string { return p.float },
		unpacked: func(part, weight) error { return nil },
		types:    func(weight) []string { return []string{p.float} },
		pack: func(_ part, w weight, typ string) (packing, error) {
			return packing{}, checkFloats(typ, w.values, o.Inexact)
		},
		exactHint: "--dtype f32 stores the numbers of Q(x) as they are",
	})
	return p.plan(), err
}

// pack determines how each tensor is stored. l contains unpacked, types and pack. unpacked
// is an error if weights are stored as floats without o.Floats.
func (p *hubPlan) pack(parts []part, o Options, l layout) (unpacked, err error) {
	l.float = func(part, weight) string { return p.float }
	if o.Type != "" {
		l.types = func(weight) []string { return []string{o.Type} }
	}
	l.needsGrid = true
	l.exactHint = "--to hf --dtype f32, without --type, stores the numbers of Q(x) as they are"
	l.floatsHint = "--allow-floats stores them so, and packs the others; --to hf stores all as floats"
	if p.stored, unpacked, err = p.source.plan(parts, o, l); err != nil {
		return nil, err
	}
	packed := false
	for i := range p.stored {
		t := &p.stored[i]
		if t.packing == nil {
			continue
		}
		if packed = true; p.inputs != nil {
			in, err := p.inputs(t.Param, t.packing.typ)
			if err != nil {
				return nil, err
			}
			t.packing.inputs, t.packing.globalInput = in.quantized, in.global
		}
		t.Type = t.packing.String()
		for _, x := range p.packed(*t) {
			t.Bytes += int64(x.DType.Bits()) / 8 * program.FloatType(x.Shape...).Size()
		}
	}
	if packed {
		return unpacked, nil
	}
	for _, t := range p.stored {
		if t.Quantized && t.Note != "" {
			return nil, &WeightsError{fmt.Errorf("no weight can be packed: %s: %s; --to hf stores "+
				"Q(x) as floats, rotated back", t.Name, t.Note)}
		}
	}
	return nil, fmt.Errorf("no weight of this model is quantized: use --to hf to store it as floats")
}

// notRotated returns an error if the codes of a weight are those of a rotated matrix.
func notRotated(w weight) error {
	if rotated, ok := errors.AsType[*RotatedError](w.gridErr); ok {
		return rotated
	}
	return nil
}

// gridOf returns a function that reads the grid of the packed tensor t. Its codes are floats or,
// for an integer type, what toIntegers makes of them.
func (p *hubPlan) gridOf(
	t Stored, toIntegers func(*Grid) (*Grid, error),
) func() (*Grid, error) {
	return func() (*Grid, error) {
		w, err := p.source.weight(t.part.Param)
		if err != nil {
			return nil, err
		}
		g := w.grid.of(t.part)
		if t.packing.float() {
			return g.floats()
		}
		return toIntegers(g)
	}
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

func (p *hubPlan) plain(t Stored) safetensors.Tensor {
	write := func(out io.Writer) error {
		w, err := p.source.weight(t.part.Param)
		if err != nil {
			return err
		}
		return writeFloats(out, p.float, pick(t.part, w.values))
	}
	dtype := floatTypesOfFiles[p.float]
	return safetensors.Tensor{Name: t.Name, DType: dtype, Shape: t.Shape, Write: write}
}

func (p *hubPlan) write(ctx context.Context, dir vfs.Path) error {
	var tensors []safetensors.Tensor
	for _, t := range p.stored {
		if t.packing != nil && p.packed != nil {
			tensors = append(tensors, p.packed(t)...)
		} else {
			tensors = append(tensors, p.plain(t))
		}
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
	if d.Config, err = huggingface.Stored(d.Config, dtype, p.entries); err != nil {
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
