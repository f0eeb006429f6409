package export

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/gguf"
	"github.com/cage-qat/cage/internal/halffloat"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/vfs"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

const (
	ggufFile = "model.gguf"
	typeQ8   = "q8_0"
)

var ggufTypes = map[string]gguf.Type{
	"q4_0": gguf.Q4_0, "q4_1": gguf.Q4_1, "q5_0": gguf.Q5_0, "q5_1": gguf.Q5_1,
	typeQ8: gguf.Q8_0, typeMXFP4: gguf.MXFP4, typeNVFP4: gguf.NVFP4, "q1_0": gguf.Q1_0,
	"q2_0":  gguf.Q2_0,
	"tq1_0": gguf.TQ1_0, "tq2_0": gguf.TQ2_0,
	floatF32: gguf.F32, floatF16: gguf.F16, floatBF16: gguf.BF16,
}

type ggufPlan struct {
	source  *source
	inexact bool
	entries []gguf.Entry
	tensors []ggufTensor
}

type ggufTensor struct {
	Stored
	typ    gguf.Type
	values []float32 // of a tensor that is not a parameter
}

func planGGUF(m *Model, o Options) (*Plan, error) {
	float, err := checkFloat(o.Float)
	if err != nil {
		return nil, err
	}
	if _, ok := ggufTypes[o.Type]; o.Type != "" && !ok {
		return nil, fmt.Errorf("there is no type %q: want one of %s", o.Type, names(ggufTypes))
	}
	settings := m.Settings
	settings.FillIn()
	if size, _ := gguf.Q8_0.Block(); o.Embedding == typeQ8 && settings.Width%size != 0 {
		return nil, fmt.Errorf("rows of the embedding have %d elements, want a multiple of %d for %s",
			settings.Width, size, typeQ8)
	} else if _, err := checkFloat(o.Embedding); err != nil && o.Embedding != typeQ8 {
		return nil, fmt.Errorf("--embedding: %w, %s", err, typeQ8)
	}
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
		p.add(Stored{Name: "rope_freqs.weight", Shape: []int{len(factors)}, Type: floatF32}, factors)
	}
	stored, unpacked, err := p.source.plan(parts, o, ggufLayout(family, float, o))
	if err != nil {
		return nil, err
	}
	if unpacked != nil {
		return nil, unpacked
	}
	for _, t := range stored {
		if p.add(t, nil); t.Type == typeNVFP4 {
			name := gguf.Info{Name: t.Name, Shape: t.Shape}.ScaleName()
			p.add(Stored{Name: name, Shape: []int{1}, Type: floatF32},
				[]float32{1 / t.packing.global})
		}
	}
	main, quantizes := p.mainType()
	if o.Type != "" && !quantizes {
		return nil, fmt.Errorf("type %s is for quantized weights, but no weight of this model is "+
			"quantized: use --dtype to choose the type of floats", o.Type)
	}
	p.entries = family.entries(m, settings, main)
	tokens, notes, err := ggufTokens(m.Tokenizer, m.Settings.Vocab, o.Inexact)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	p.entries = append(p.entries, tokens...)
	notes = append(notes, m.unlimited("llama.cpp", family != "llama")...)
	plan := &Plan{Notes: notes, Write: p.write}
	plan.Read = func(dir vfs.Path, each func(name string, values []float32) error) error {
		return gguf.ReadFile(dir.Join(ggufFile), p.entries,
			func(name string, values []float32) error {
				if strings.HasSuffix(name, "norm.weight") {
					values = shifted(values, -settings.NormOffset())
				}
				return each(name, values)
			})
	}
	for _, t := range p.tensors {
		if t.values == nil {
			plan.Tensors = append(plan.Tensors, t.Stored)
		}
	}
	return plan, nil
}

// ggufLayout says how tensors are stored; float is the type of floats.
func ggufLayout(family ggufFamily, float string, o Options) layout {
	rotated := func(w weight) error { // why it is stored as floats
		if r, ok := errors.AsType[*RotatedError](w.gridErr); ok && o.Type == "" {
			return r
		}
		return nil
	}
	return layout{
		float: func(part part, w weight) string {
			if len(part.Param.Dims) < 2 || rotated(w) != nil { // llama.cpp requires norms in float32
				return floatF32
			}
			if r := part.Param.Role; r == architecture.RoleEmbedding || r == architecture.RoleHead {
				return cmp.Or(o.Embedding, float)
			}
			return float
		},
		unpacked:  func(_ part, w weight) error { return rotated(w) },
		needsGrid: !slices.Contains(floatTypes, o.Type),
		types: func(w weight) []string {
			if o.Type != "" {
				return []string{o.Type}
			}
			if w.grid.Numbers.Format == spec.FormatE2M1 {
				return []string{typeMXFP4, typeNVFP4, typeQ8}
			}
			// The smallest first; tq1_0 is smaller, and slower.
			list := []string{"q1_0", "tq2_0", "q2_0", "q4_0", "q4_1", "q5_0", "q5_1", typeQ8}
			return slices.DeleteFunc(list, func(typ string) bool {
				return typ != typeQ8 && ggufCodes(w.grid, ggufTypes[typ]) != nil
			})
		},
		pack: func(part part, w weight, typ string) (how packing, err error) {
			switch {
			case slices.Contains(floatTypes, typ):
				err = checkFloats(typ, w.values, o.Inexact)
			case typ != typeNVFP4:
				_, err = ggufBlocks(w.grid, ggufTypes[typ], o.Inexact)
			case part.Param.Role != architecture.RoleMatrix || family != "llama" && family != "qwen3":
				err = errors.New("llama.cpp knows NVFP4's scale of a tensor only in linear layers of blocks, " +
					"and only in models of kind llama and qwen3")
			default:
				how.global, err = ggufScale(w.grid, o.Inexact)
			}
			return how, err
		},
		exactHint:  "--type f32 stores the numbers of Q(x) as they are",
		floatsHint: "--allow-floats stores them as float32, rotated back, and the others packed",
	}
}

// add adds a tensor. stored.Type must be a key of ggufTypes.
func (p *ggufPlan) add(stored Stored, values []float32) {
	t := ggufTensor{stored, ggufTypes[stored.Type], values}
	elements, bytes := t.typ.Block()
	n := program.FloatType(t.Shape...).Size()
	t.Type, t.Bytes = t.typ.String(), n/int64(elements)*int64(bytes)
	p.tensors = append(p.tensors, t)
}

// mainType returns the type that stores most bytes of the quantized weights, or of the matrices if
// no weight is quantized.
func (p *ggufPlan) mainType() (most gguf.Type, quantizes bool) {
	quantizes = slices.ContainsFunc(p.tensors, func(t ggufTensor) bool { return t.Quantized })
	sum := map[gguf.Type]int64{}
	most = gguf.F32
	for _, t := range p.tensors {
		if len(t.Shape) < 2 || t.Quantized != quantizes {
			continue
		}
		if sum[t.typ] += t.Bytes; sum[t.typ] > sum[most] {
			most = t.typ
		}
	}
	return most, quantizes
}

func (p *ggufPlan) write(ctx context.Context, dir vfs.Path) error {
	var tensors []gguf.Tensor
	for _, t := range p.tensors {
		write := func(out io.Writer) error {
			if t.values != nil {
				return writeFloats(out, floatF32, t.values)
			}
			w, err := p.source.weight(t.part.Param)
			if err != nil {
				return err
			}
			if name := strings.ToLower(t.Type); slices.Contains(floatTypes, name) {
				values := pick(t.part, w.values)
				if t.part.Param.Role == architecture.RoleNorm {
					values = shifted(values, p.source.Settings.NormOffset())
				}
				return writeFloats(out, name, values)
			}
			if t.typ == gguf.Q8_0 && !t.Quantized {
				_, err := out.Write(roundQ8(pick(t.part, w.values)))
				return err
			}
			var data []byte
			if grid := w.grid.of(t.part); t.typ == gguf.NVFP4 {
				data, err = ggufNVFP4(grid, t.packing.global)
			} else {
				data, err = ggufBlocks(grid, t.typ, p.inexact)
			}
			if err == nil {
				_, err = out.Write(data)
			}
			return err
		}
		tensors = append(tensors,
			gguf.Tensor{Name: t.Name, Type: t.typ, Shape: t.Shape, Write: write})
	}
	return gguf.WriteFile(ctx, dir.Join(ggufFile), p.entries, tensors)
}

// shifted adds a number to the gains of a norm.
func shifted(gains []float32, by float64) []float32 {
	if by == 0 {
		return gains // with their signs
	}
	return lists.Map(gains, func(g float32) float32 { return g + float32(by) })
}

func ggufCodes(g *Grid, typ gguf.Type) error {
	low, high := math.MinInt8, math.MaxInt8
	if affine := g.Numbers.Format == spec.FormatAffine; affine || typ == gguf.Q5_1 {
		highest := map[gguf.Type]int{gguf.Q4_1: 15, gguf.Q5_1: 31}[typ]
		if affine && g.Numbers.Max <= highest {
			return nil
		}
		return errors.New("only q4_1 (codes 0 to 15) and q5_1 (0 to 31) store a minimum per group, " +
			"and q5_1 requires one")
	}
	switch typ {
	case gguf.TQ1_0, gguf.TQ2_0:
		low, high = -1, 1
	case gguf.Q2_0:
		if low, high = -1, 2; g.Numbers.Min < low {
			low, high = -2, 1 // with negative scales
		}
	case gguf.Q4_0:
		low, high = -8, 7
	case gguf.Q5_0:
		low, high = -16, 15
	case gguf.Q1_0:
		if low, high = -1, 1; g.Numbers.Step != 2 {
			return errors.New("not all codes are −1 or 1")
		}
	case gguf.Q4_1: // its levels are half-integers
		if low, high = -15, 15; g.Numbers.Step != 2 || g.Numbers.Min%2 == 0 {
			return errors.New("not all codes are odd: Q4_1 requires a grid of half-integers")
		}
	}
	if !g.fits(low, high) {
		return fmt.Errorf("codes range from %d to %d, want %d to %d",
			g.Numbers.Min, g.Numbers.Max, low, high)
	}
	return nil
}

// ggufBlocks packs the codes and scales of a grid into blocks of typ. If inexact is set, scales are
// rounded to half floats.
func ggufBlocks(g *Grid, typ gguf.Type, inexact bool) (out []byte, err error) {
	size, _ := typ.Block()
	if typ == gguf.MXFP4 {
		g, err = mxfp4Blocks(g)
	} else if g.Minima == nil {
		g, err = g.integers()
	}
	if err == nil && typ != gguf.MXFP4 {
		if err = ggufCodes(g, typ); err == nil {
			g, err = g.split(size)
		}
	}
	if err != nil {
		return nil, err
	}
	for i, s := range g.Scales {
		codes := g.Codes[i*size : (i+1)*size]
		if typ == gguf.MXFP4 {
			exponent, err := codeE8M0(s)
			if err != nil {
				return nil, err
			}
			out = packNibbles(append(out, exponent), codes, 0)
			continue
		}
		if !isHalf(s, inexact) {
			return nil, errors.New("not all scales are half floats, as those of a quantizer with " +
				`scale_dtype = "f16" are; --inexact rounds them`)
		}
		if g.Minima != nil {
			if !isHalf(g.Minima[i], inexact) {
				return nil, errors.New("not all minima are half floats; --inexact rounds them")
			}
			out = appendHalf(appendHalf(out, s), g.Minima[i])
			if typ == gguf.Q5_1 {
				out = packFives(out, codes, 0)
			} else {
				out = packNibbles(out, codes, 0)
			}
			continue
		}
		switch typ {
		case gguf.Q8_0:
			out = appendHalf(out, s)
			for _, code := range codes {
				out = append(out, byte(code))
			}
		case gguf.Q2_0:
			if g.Numbers.Min < -1 {
				s, codes = -s, lists.Map(codes, func(c int32) int32 { return -c })
			}
			out = appendHalf(out, s)
			for _, word := range packWords(codes, size, 2, -1) {
				out = binary.LittleEndian.AppendUint32(out, uint32(word))
			}
		case gguf.TQ1_0:
			out = appendHalf(packTernary(out, codes), s)
		case gguf.TQ2_0:
			out = appendHalf(packPairs(out, codes), s)
		case gguf.Q4_0:
			out = packNibbles(appendHalf(out, s), codes, 8)
		case gguf.Q5_0:
			out = packFives(appendHalf(out, s), codes, 16)
		case gguf.Q1_0:
			if s != 0 && slices.Contains(codes, 0) {
				return nil, errors.New("some numbers are 0, and Q1_0 has −1 and 1 only")
			}
			out = appendHalf(out, s)
			for from := 0; from < size; from += 8 {
				b := byte(0)
				for i, c := range codes[from : from+8] {
					b |= byte((c+1)/2) << i
				}
				out = append(out, b)
			}
		case gguf.Q4_1:
			// Odd codes from −15 to 15 are twice the levels of a grid of half-integers, which Q4_1
			// stores as step·(level + 7.5) − 7.5·step. In a group of zeros, whose scale is 0, the
			// code 0 is replaced by an adjacent odd code.
			scale := halffloat.FromHalf(halffloat.ToHalf(s))
			step, minimum := 2*scale, -15*scale
			if !isHalf(step, inexact) || !isHalf(minimum, inexact) {
				return nil, errors.New("7.5 times the step is not always a half float; it is with " +
					`scale_dtype = "f16" of the quantizer, which gives steps 7 significant bits; ` +
					"--inexact rounds it")
			}
			shifted := lists.Map(codes, func(c int32) int32 { return (c + 15) / 2 })
			out = packNibbles(appendHalf(appendHalf(out, step), minimum), shifted, 0)
		}
	}
	return out, nil
}

// ggufScale returns the global scale of a weight in NVFP4. llama.cpp multiplies by it last, so that
// only a power of two gives Q(x); if inexact is set, others may differ in the last bit.
func ggufScale(g *Grid, inexact bool) (float32, error) {
	if size, _ := gguf.NVFP4.Block(); g.Columns%size != 0 {
		return 0, &shortGroupError{g.Columns, size, g.Columns % size}
	}
	global, exact, err := nvfp4Of(g)
	if fraction, _ := math.Frexp(float64(global)); err == nil && !inexact &&
		!(exact && fraction == 0.5) {
		err = errors.New("scales are not E4M3 numbers times one power of two, as those of the " +
			`quantizer nvfp4 with scale_form = "power_of_two" are; --inexact rounds them`)
	}
	return global, err
}

// ggufNVFP4 packs a grid into blocks of 64 elements of GGUF's NVFP4.
func ggufNVFP4(g *Grid, global float32) (out []byte, err error) {
	scales, err := nvfp4Codes(g, global)
	if err != nil {
		return nil, err
	}
	if g, err = g.floats(); err != nil {
		return nil, err
	}
	for i := 0; i < len(scales); i += 4 {
		out = append(out, scales[i:i+4]...)
		for block := range slices.Chunk(g.Codes[i*nvfp4Block:(i+4)*nvfp4Block], nvfp4Block) {
			out = packNibbles(out, block, 0)
		}
	}
	return out, nil
}

// roundQ8 rounds values to blocks of Q8_0, as llama.cpp does: the scale is the largest magnitude
// over 127, and codes are rounded half away from zero.
func roundQ8(values []float32) (out []byte) {
	size, _ := gguf.Q8_0.Block()
	for block := range slices.Chunk(values, size) {
		largest, inverse := float32(0), float32(0)
		for _, v := range block {
			largest = max(largest, v, -v)
		}
		scale := largest / 127
		if scale != 0 {
			inverse = 1 / scale
		}
		out = appendHalf(out, scale)
		for _, v := range block {
			out = append(out, byte(int8(math.Round(float64(v*inverse)))))
		}
	}
	return out
}

// isHalf reports whether v is exactly a half float or, if inexact is set, rounds to a finite one.
func isHalf(v float32, inexact bool) bool {
	half := halffloat.FromHalf(halffloat.ToHalf(v))
	return half-half == 0 && (half == v || inexact)
}

func appendHalf(dst []byte, v float32) []byte {
	return binary.LittleEndian.AppendUint16(dst, halffloat.ToHalf(v))
}

// packNibbles appends a block of codes, each plus offset, which must give 0…15: byte j has element
// j in its low four bits, and in its high four bits element j of the second half.
func packNibbles(dst []byte, codes []int32, offset int32) []byte {
	for j := range len(codes) / 2 {
		dst = append(dst, byte(codes[j]+offset)|byte(codes[j+len(codes)/2]+offset)<<4)
	}
	return dst
}

// packFives appends a block of codes, each plus offset, which must give 0…31: the fifth bits of all
// codes, and then the others.
func packFives(dst []byte, codes []int32, offset int32) []byte {
	high, low := uint32(0), slices.Clone(codes)
	for i, c := range codes {
		high |= uint32(c+offset) >> 4 << i
		low[i] = (c + offset) & 15
	}
	return packNibbles(binary.LittleEndian.AppendUint32(dst, high), low, 0)
}

// packPairs appends a block of 256 codes −1, 0 and 1, each plus 1: of each half, byte j has
// elements j, j+32, j+64 and j+96 in two bits each, the first one in the lowest bits.
func packPairs(dst []byte, codes []int32) []byte {
	for half := range slices.Chunk(codes, 128) {
		for j := range 32 {
			b := 0
			for k := range 4 {
				b |= int(half[j+32*k]+1) << (2 * k)
			}
			dst = append(dst, byte(b))
		}
	}
	return dst
}

// packTernary appends a block of 256 codes −1, 0 and 1. Each byte takes five of them (the last four
// bytes take four), plus 1, as the digits of a number in base 3, and stores number·256/3⁵, rounded
// up.
func packTernary(dst []byte, codes []int32) []byte {
	for _, size := range []int{32, 16, 4} { // bytes, each with five digits; the last ones with four
		digits := min(5, len(codes)/size)
		for j := range size {
			number := 0
			for k := range 5 {
				if number *= 3; k < digits {
					number += int(codes[j+size*k] + 1)
				}
			}
			dst = append(dst, byte((number*256+242)/243))
		}
		codes = codes[size*digits:]
	}
	return dst
}
