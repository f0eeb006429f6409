package export

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/vfs"
)

// The reading functions of this file are written from the descriptions of the formats and share no
// code with the writing functions, so that comparing their results with the original is a
// meaningful check.

// storedQuantization is the part of quantization_config that describes the storage of weights.
type storedQuantization struct {
	Groups map[string]struct {
		Format  string   `json:"format"`
		Targets []string `json:"targets"`
		Weights struct {
			Bits int `json:"num_bits"`
		} `json:"weights"`
	} `json:"config_groups"`
}

// mlxQuantization is the value of quantization in a directory of MLX.
type mlxQuantization struct {
	mlxMode
	Modules map[string]mlxMode `json:",embed"`
}

type mlxMode struct {
	Group int    `json:"group_size"`
	Bits  int    `json:"bits"`
	Mode  string `json:"mode"`
}

// readDirectory reads all weights of a Hugging Face directory, plain or in a layout of
// compressed-tensors or MLX. It calls each with the names that the weights have without
// quantization.
func readDirectory(dir vfs.Path, each func(name string, values []float32) error) (err error) {
	text, err := dir.Join("config.json").ReadFile()
	if err != nil {
		return err
	}
	var config struct {
		Quantization *storedQuantization `json:"quantization_config"`
		MLX          mlxQuantization     `json:"quantization"`
	}
	if err := plainjson.Unmarshal(text, &config); err != nil {
		return fmt.Errorf("%s: %w", dir.Join("config.json"), err)
	}
	files, err := safetensors.OpenShards(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, files.Close()) }()
	c := checkpoint{files, config.Quantization, config.MLX}
	for _, info := range files.Tensors() {
		if slices.ContainsFunc([]string{scaleSuffix, shapeSuffix, scalesSuffix, biasesSuffix},
			func(suffix string) bool { return strings.HasSuffix(info.Name, suffix) }) {
			continue // it belongs to another tensor
		}
		name := strings.TrimSuffix(info.Name, packedSuffix)
		values, err := c.values(name)
		if err == nil {
			err = each(name, values)
		}
		if err != nil {
			return fmt.Errorf("%s: tensor %s: %w", dir, name, err)
		}
	}
	return nil
}

const (
	packedSuffix = "_packed"
	scaleSuffix  = "_scale"
	globalSuffix = "_global_scale"
	shapeSuffix  = "_shape"
	scalesSuffix = ".scales"
	biasesSuffix = ".biases"
)

type checkpoint struct {
	files        *safetensors.Shards
	quantization *storedQuantization
	mlx          mlxQuantization
}

func (c checkpoint) values(name string) ([]float32, error) {
	if t, err := c.files.Tensor(name); err == nil {
		if t.DType == safetensors.U32 {
			return c.words(strings.TrimSuffix(name, ".weight"), t)
		}
		return huggingface.Floats(t)
	}
	t, err := c.files.Tensor(name + packedSuffix)
	if err != nil {
		return nil, err
	}
	if len(t.Shape) != 2 {
		return nil, fmt.Errorf("%s has the shape %v, want two axes", t.Name, t.Shape)
	}
	switch format, bits := c.formatOf(strings.TrimSuffix(name, ".weight")); format {
	case "pack-quantized":
		return c.integers(name, t, bits)
	case "mxfp4-pack-quantized":
		return c.fourBit(name+scaleSuffix, t, 32, safetensors.U8, powerOfTwo)
	case "nvfp4-pack-quantized":
		g, err := c.files.Tensor(name + globalSuffix)
		if err != nil {
			return nil, err
		}
		global, err := safetensors.Values[float32](g)
		if err == nil && len(global) != 1 {
			err = fmt.Errorf("%s has %d numbers, want 1", g.Name, len(global))
		}
		if err != nil {
			return nil, err
		}
		return c.fourBit(name+scaleSuffix, t, 16, safetensors.F8E4M3, func(scale byte) float32 {
			return eightBit(scale) / global[0]
		})
	default:
		return nil, fmt.Errorf("unknown format %q in quantization_config", format)
	}
}

// formatOf returns the format of the group that lists module, or else of the one for all layers.
func (c checkpoint) formatOf(module string) (format string, bits int) {
	if c.quantization == nil {
		return "", 0
	}
	for _, g := range c.quantization.Groups {
		if slices.Contains(g.Targets, module) {
			return g.Format, g.Weights.Bits
		}
		if slices.Contains(g.Targets, "Linear") {
			format, bits = g.Format, g.Weights.Bits
		}
	}
	return format, bits
}

// integers reads packed codes plus 2^(bits−1) from words, and returns code·scale. The shape tensor
// must match the packed one. There is a scale for each row or group.
func (c checkpoint) integers(name string, words safetensors.Tensor, bits int) ([]float32, error) {
	if bits != 4 && bits != 8 {
		return nil, fmt.Errorf("integers of %d bits", bits)
	}
	data, err := words.Bytes()
	if err != nil {
		return nil, err
	}
	shape, err := c.files.Tensor(name + shapeSuffix)
	if err != nil {
		return nil, err
	}
	list, err := safetensors.Values[int64](shape)
	if err != nil {
		return nil, err
	}
	rows, rowBytes := words.Shape[0], words.Shape[1]*4
	if words.DType != safetensors.I32 || len(list) != 2 || list[0] != int64(rows) ||
		list[1] <= 0 || list[1] > int64(rowBytes*8/bits) {
		return nil, fmt.Errorf("%s is %v, which does not match packed words, %s of shape %v",
			shape.Name, list, words.DType, words.Shape)
	}
	columns := int(list[1])
	scale, err := c.files.Tensor(name + scaleSuffix)
	if err != nil {
		return nil, err
	}
	s := scale.Shape
	if len(s) != 2 || s[0] != rows || s[1] < 1 || columns%s[1] != 0 {
		return nil, fmt.Errorf("%s has shape %v, which does not match a weight of [%d %d]",
			scale.Name, s, rows, columns)
	}
	scales, err := huggingface.Floats(scale)
	if err != nil {
		return nil, err
	}
	out := make([]float32, 0, rows*columns)
	for r := range rows {
		row := data[r*rowBytes:]
		for i := range columns {
			code := int(row[i*bits/8])
			if bits == 4 {
				code = code >> (i & 1 * 4) & 15
			}
			out = append(out, float32(code-1<<(bits-1))*scales[r*s[1]+i*s[1]/columns])
		}
	}
	return out, nil
}

// words reads the weight of a module as MLX stores it: codes in words, from the least significant
// bit, and for each group a scale and, in the mode affine, a bias.
func (c checkpoint) words(module string, t safetensors.Tensor) ([]float32, error) {
	mxfp4 := mlxMode{32, 4, "mxfp4"}
	m, ok := c.mlx.Modules[module]
	if !ok {
		m = c.mlx.mlxMode
	}
	switch {
	case m == mxfp4 && len(t.Shape) == 2:
		return c.fourBit(module+scalesSuffix, t, 32, safetensors.U8, powerOfTwo)
	case m.Mode != "affine" || m.Bits != 2 && m.Bits != 4 && m.Bits != 8 || m.Group < 1:
		return nil, fmt.Errorf("words of shape %v, which quantization describes as %+v", t.Shape, m)
	}
	data, err := t.Bytes()
	if err != nil {
		return nil, err
	}
	out := make([]float32, len(data)*8/m.Bits)
	var of [2][]float32
	for i, suffix := range []string{scalesSuffix, biasesSuffix} {
		s, err := c.files.Tensor(module + suffix)
		if err == nil {
			of[i], err = huggingface.Floats(s)
		}
		if err == nil && len(of[i])*m.Group != len(out) {
			err = fmt.Errorf("%s has %d numbers, want one for %d of %d elements",
				s.Name, len(of[i]), m.Group, len(out))
		}
		if err != nil {
			return nil, err
		}
	}
	for i := range out {
		code := data[i*m.Bits/8] >> (i * m.Bits % 8) & (1<<m.Bits - 1)
		out[i] = float32(of[0][i/m.Group]*float32(code)) + of[1][i/m.Group]
	}
	return out, nil
}

func powerOfTwo(exponent byte) float32 { return float32(math.Pow(2, float64(exponent)-127)) }

// levels holds the magnitudes of E2M1, indexed by code.
var levels = []float32{0, 0.5, 1, 1.5, 2, 3, 4, 6}

func level(code byte) float32 {
	if code >= 8 {
		return -levels[code-8]
	}
	return levels[code]
}

// fourBit reads E2M1 codes, two per byte, low bits first, and multiplies them by the scales of
// their blocks, which are in another tensor, as bytes of the type dtype.
func (c checkpoint) fourBit(scales string, t safetensors.Tensor, block int, dtype safetensors.DType,
	number func(scale byte) float32) ([]float32, error) {
	data, err := t.Bytes()
	if err != nil {
		return nil, err
	}
	s, err := c.files.Tensor(scales)
	if err != nil {
		return nil, err
	}
	columns := t.Shape[1] * t.DType.Bits() / 4
	if t.DType != safetensors.U8 && t.DType != safetensors.U32 || columns%block != 0 ||
		s.DType != dtype || !slices.Equal(s.Shape, []int{t.Shape[0], columns / block}) {
		return nil, fmt.Errorf("%s is %s of shape %v, want a scale per block of %d in %s of shape %v",
			s.Name, s.DType, s.Shape, block, t.DType, t.Shape)
	}
	bytes, err := s.Bytes()
	if err != nil {
		return nil, err
	}
	out, scale := make([]float32, 0, 2*len(data)), float32(0)
	for i, b := range data {
		if 2*i%block == 0 {
			scale = number(bytes[2*i/block])
		}
		out = append(out, level(b&15)*scale, level(b>>4)*scale)
	}
	return out, nil
}

// eightBit returns the number that an E4M3 code represents: a sign bit, four exponent bits, three
// mantissa bits, no infinities; 7f is NaN.
func eightBit(code byte) float32 {
	exponent, mantissa := int(code>>3&15), float64(code&7)
	v := math.Ldexp(1+mantissa/8, exponent-7)
	switch {
	case exponent == 0:
		v = math.Ldexp(mantissa/8, -6)
	case code&0x7f == 0x7f:
		v = math.NaN()
	}
	if code >= 0x80 {
		v = -v
	}
	return float32(v)
}
