package export

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/cage-qat/cage/host/model/gguf"
	"github.com/cage-qat/cage/internal/halffloat"
	"github.com/cage-qat/cage/internal/vfs"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

type ggufFormat struct{}

const ggufFile = "model.gguf"

var ggufTypes = map[string]gguf.Type{
	"q4_0": gguf.Q4_0, "q4_1": gguf.Q4_1, "q8_0": gguf.Q8_0, typeMXFP4: gguf.MXFP4, floatF32: gguf.F32, floatF16: gguf.F16, floatBF16: gguf.BF16,
}

type ggufPlan struct {
	source  *source
	inexact bool
	entries []gguf.Entry
	notes   []string
	tensors []ggufTensor
}

type ggufTensor struct {
	Stored
	typ    gguf.Type
	values []float32 // of a tensor that is not a parameter
}

// Plan implements Format.
func (ggufFormat) Plan(m *Model, o Options) (Plan, error) {
	float, err := checkFloat(o.Float)
	if err != nil {
		return nil, err
	}
	if _, ok := ggufTypes[o.Type]; o.Type != "" && !ok {
		return nil, fmt.Errorf("there is no type %q: want one of %s", o.Type, names(ggufTypes))
	}
	settings := m.Settings
	settings.FillIn()
	family, err := ggufFamilyOf(settings)
	if err != nil {
		return nil, err
	}
	parts, err := family.parts(m, settings.HeadSize)
	if err != nil {
		return nil, err
	}
	p := &ggufPlan{source: &source{Model: m, latent: o.Latent}, inexact: o.Inexact}
	if factors := ropeFactors(settings); factors != nil {
		p.add(ggufTensor{Stored: Stored{Name: "rope_freqs.weight", Shape: []int{len(factors)}}, typ: gguf.F32, values: factors})
	}
	if err := p.choose(parts, o, ggufTypes[float]); err != nil {
		return nil, err
	}
	if o.Type != "" && !p.quantizes() {
		return nil, fmt.Errorf("the type %s is for quantized weights, and no weight of this model is quantized: --dtype says how floats are stored", o.Type)
	}
	if p.entries, err = family.entries(m, settings, p.mainType()); err != nil {
		return nil, err
	}
	tokens, notes, err := ggufTokens(m.Tokenizer, m.Settings.Vocab, o.Inexact)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	p.entries, p.notes = append(p.entries, tokens...), notes
	if m.Window > 0 && m.Window < m.Positions {
		p.notes = append(p.notes, fmt.Sprintf("attention looks back %d tokens (sliding_window), and in llama.cpp as far as a sequence goes: longer sequences give other numbers", m.Window))
	}
	return p, nil
}

// Notes implements Plan.
func (p *ggufPlan) Notes() []string { return p.notes }

func (p *ggufPlan) add(t ggufTensor) {
	elements, bytes := t.typ.Block()
	n := program.FloatType(t.Shape...).Size()
	t.Type, t.Bytes = t.typ.String(), n/int64(elements)*int64(bytes)
	p.tensors = append(p.tensors, t)
}

// choose determines the type of each tensor. Norms are always float32, as llama.cpp requires.
func (p *ggufPlan) choose(parts []part, o Options, float gguf.Type) error {
	var refused refusals
	var floats leaving
	var list []ggufTensor
	var packed []part
	for _, part := range parts {
		stored := Stored{Name: part.name, Param: part.param.Name, Shape: part.shape(), part: part}
		t := ggufTensor{Stored: stored, typ: float}
		w, err := p.source.weight(part.param)
		if err != nil {
			return err
		}
		if t.Quantized = w.quantized; w.quantized {
			floats.quantized++
		}
		rotated, isRotated := errors.AsType[*RotatedError](w.noGrid)
		switch {
		case len(t.Shape) < 2:
			t.typ = gguf.F32
		case !w.quantized:
			if err := checkFits(floatName(t.typ), w.values); err != nil {
				refused.add(part.name, false, err)
			}
		case isRotated && o.Type == "":
			t.typ, t.Note = gguf.F32, rotated.Error()
			floats.add(part.name, true, rotated)
		case w.grid == nil && !slices.Contains(floatTypes, o.Type):
			refused.add(part.name, true, w.noGrid)
		default:
			packed = append(packed, part)
		}
		list = append(list, t)
	}
	types := func(w weight) []gguf.Type {
		if typ, ok := ggufTypes[o.Type]; ok {
			return []gguf.Type{typ}
		}
		if w.grid.Numbers.Format == spec.FormatE2M1 {
			return []gguf.Type{gguf.MXFP4, gguf.Q8_0}
		}
		list := []gguf.Type{gguf.Q4_0, gguf.Q4_1, gguf.Q8_0} // smallest first
		return slices.DeleteFunc(list, func(typ gguf.Type) bool {
			return typ != gguf.Q8_0 && ggufCodes(w.grid, typ) != nil
		})
	}
	holds := func(_ part, w weight, typ gguf.Type) (err error) {
		switch name := floatName(typ); {
		case name != "" && !p.inexact && !holds(name, w.values):
			return fmt.Errorf("its numbers are not all of that type")
		case name != "":
			return checkFits(name, w.values)
		case w.grid == nil:
			return w.noGrid
		}
		_, err = ggufBlocks(w.grid, typ, p.inexact)
		return err
	}
	chosen, err := chooseTypes(p.source, packed, types, holds, &refused)
	if err == nil {
		err = refused.err("--type f32 stores the numbers of Q(x) as they are")
	}
	if err == nil {
		err = floats.err(o.Floats,
			"--allow-floats stores them as float32, rotated back, and packs the others")
	}
	if err != nil {
		return err
	}
	for _, t := range list {
		if typ, ok := chosen[t.Name]; ok {
			t.typ = typ
		}
		p.add(t)
	}
	return nil
}

// ggufCodes returns why a type lacks some codes of a grid of integers; nil if it has all.
func ggufCodes(g *Grid, typ gguf.Type) error {
	low, high := math.MinInt8, math.MaxInt8
	switch typ {
	case gguf.Q4_0:
		low, high = -8, 7
	case gguf.Q4_1: // its levels are half-integers
		if low, high = -15, 15; g.Numbers.Step != 2 || g.Numbers.Min%2 == 0 {
			return errors.New("its codes are not all odd: Q4_1 is for grids of half-integers")
		}
	}
	if !g.fits(low, high) {
		return fmt.Errorf("its codes, from %d to %d, are not all from %d to %d",
			g.Numbers.Min, g.Numbers.Max, low, high)
	}
	return nil
}

// floatName returns the name of the type in Options; "" if it is not a plain float.
func floatName(typ gguf.Type) string {
	return map[gguf.Type]string{gguf.F32: floatF32, gguf.BF16: floatBF16, gguf.F16: floatF16}[typ]
}

func (p *ggufPlan) quantizes() bool {
	return slices.ContainsFunc(p.tensors, func(t ggufTensor) bool { return t.Quantized })
}

// mainType returns the type of most bytes of quantized weights, or of matrices if none is
// quantized.
func (p *ggufPlan) mainType() gguf.Type {
	quantized := p.quantizes()
	sum := map[gguf.Type]int64{}
	most := gguf.F32
	for _, t := range p.tensors {
		if len(t.Shape) < 2 || t.Quantized != quantized {
			continue
		}
		if sum[t.typ] += t.Bytes; sum[t.typ] > sum[most] {
			most = t.typ
		}
	}
	return most
}

// Tensors implements Plan.
func (p *ggufPlan) Tensors() []Stored {
	var list []Stored
	for _, t := range p.tensors {
		if t.values == nil {
			list = append(list, t.Stored)
		}
	}
	return list
}

// Write implements Plan.
func (p *ggufPlan) Write(ctx context.Context, dir vfs.Path) error {
	var tensors []gguf.Tensor
	for _, t := range p.tensors {
		write := func(out io.Writer) error {
			if t.values != nil {
				return writeFloats(out, floatF32, t.values)
			}
			w, err := p.source.weight(t.part.param)
			if err != nil {
				return err
			}
			if name := floatName(t.typ); name != "" {
				return writeFloats(out, name, pick(t.part, w.values, t.part.columns()))
			}
			data, err := ggufBlocks(w.grid.of(t.part), t.typ, p.inexact)
			if err == nil {
				_, err = out.Write(data)
			}
			return err
		}
		tensors = append(tensors, gguf.Tensor{Name: t.Name, Type: t.typ, Shape: t.Shape, Write: write})
	}
	return gguf.WriteFile(ctx, dir.Join(ggufFile), p.entries, tensors)
}

// Read implements Plan.
func (p *ggufPlan) Read(dir vfs.Path, each func(name string, values []float32) error) (err error) {
	f, err := gguf.Open(dir.Join(ggufFile))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for _, t := range f.Tensors() {
		values, err := f.Values(t)
		if err == nil {
			err = each(t.Name, values)
		}
		if err != nil {
			return fmt.Errorf("%s: tensor %s: %w", dir.Join(ggufFile), t.Name, err)
		}
	}
	return nil
}

func ggufBlocks(g *Grid, typ gguf.Type, inexact bool) ([]byte, error) {
	size, _ := typ.Block()
	g, err := ggufGrid(g, typ, inexact)
	if err != nil {
		return nil, err
	}
	var out []byte
	for i, s := range g.Scales {
		codes := g.Codes[i*size : (i+1)*size]
		switch typ {
		case gguf.Q8_0:
			out, err = packQ8_0(out, codes, s)
		case gguf.Q4_0:
			out, err = packQ4_0(out, codes, s)
		case gguf.Q4_1:
			out, err = halfIntegers(out, codes, s, inexact)
		case gguf.MXFP4:
			out, err = packMXFP4(out, codes, s)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ggufGrid returns a grid with the codes and groups of a type. If inexact is set, scales are
// rounded to half floats.
func ggufGrid(g *Grid, typ gguf.Type, inexact bool) (*Grid, error) {
	size, _ := typ.Block()
	if typ == gguf.MXFP4 {
		return mxfp4Blocks(g)
	}
	g, err := g.integers()
	if err != nil {
		return nil, err
	}
	if err := ggufCodes(g, typ); err != nil {
		return nil, err
	}
	if g, err = g.split(size); err != nil {
		return nil, err
	}
	rounded := *g
	rounded.Scales = slices.Clone(g.Scales)
	for i, s := range g.Scales {
		if _, ok := exactF16(s); !ok && !inexact {
			return nil, fmt.Errorf("its scales are not all half floats, as those of a quantizer with scale_dtype = \"f16\" are; --inexact rounds them")
		}
		rounded.Scales[i] = roundedToHalf(s)
	}
	return &rounded, nil
}

// halfIntegers packs odd codes from −15 to 15, which are twice the levels of a grid of
// half-integers, as Q4_1: step·(level + 7.5) − 7.5·step. A code of 0, in a group of zeros, is
// replaced by an adjacent one, as the scale is 0.
func halfIntegers(out []byte, codes []int32, scale float32, inexact bool) ([]byte, error) {
	shifted := make([]int32, len(codes))
	for i, c := range codes {
		shifted[i] = (c + 15) / 2
	}
	minimum := -15 * scale
	if rounded := roundedToHalf(minimum); rounded != minimum && !inexact {
		return nil, errors.New("7.5 times its step is not always a half float, as with 7 significant bits of the step: scale_dtype = \"f16\" of the quantizer makes such; --inexact rounds it")
	} else {
		minimum = rounded
	}
	return packQ4_1(out, shifted, 2*scale, minimum)
}

func roundedToHalf(v float32) float32 { return halffloat.FromHalf(halffloat.ToHalf(v)) }
