package readback

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/vfs"
)

// quantization is the part of quantization_config that says how weights are stored.
type quantization struct {
	Groups map[string]struct {
		Format  string   `json:"format"`
		Targets []string `json:"targets"`
		Weights struct {
			Bits     int    `json:"num_bits"`
			Type     string `json:"type"`
			Strategy string `json:"strategy"`
			Group    int    `json:"group_size"`
		} `json:"weights"`
	} `json:"config_groups"`
}

// Directory reads all weights of a Hugging Face directory, plain or in one of the layouts
// of compressed-tensors, under the names that they have without quantization.
func Directory(dir vfs.Path, each Each) (err error) {
	text, err := dir.Join("config.json").ReadFile()
	if err != nil {
		return err
	}
	var config struct {
		Quantization *quantization `json:"quantization_config"`
	}
	if err := plainjson.Unmarshal(text, &config); err != nil {
		return fmt.Errorf("%s: %w", dir.Join("config.json"), err)
	}
	files, err := safetensors.OpenShards(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, files.Close()) }()
	c := checkpoint{files, config.Quantization}
	for _, info := range files.Tensors() {
		name, ok := c.nameOf(info.Name)
		if !ok {
			continue
		}
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
	packed = "_packed"
	scale  = "_scale"
	global = "_global_scale"
	shape  = "_shape"
)

type checkpoint struct {
	files        *safetensors.Shards
	quantization *quantization
}

// nameOf is the name of the weight that a tensor stands for; false for what belongs to
// another tensor.
func (c checkpoint) nameOf(tensor string) (string, bool) {
	if name, ok := strings.CutSuffix(tensor, packed); ok {
		return name, true
	}
	return tensor, !strings.HasSuffix(tensor, scale) && !strings.HasSuffix(tensor, shape)
}

func (c checkpoint) values(name string) ([]float32, error) {
	if t, err := c.files.Tensor(name); err == nil {
		return floats(t)
	}
	t, err := c.files.Tensor(name + packed)
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
		return c.mxfp4(name, t)
	case "nvfp4-pack-quantized":
		return c.nvfp4(name, t)
	default:
		return nil, fmt.Errorf("the format %q of quantization_config is not known", format)
	}
}

// formatOf finds the group of a module: the one that lists it, else the one for all.
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

// floats widens a tensor of plain floats.
func floats(t safetensors.Tensor) ([]float32, error) {
	data, err := t.Bytes()
	if err != nil {
		return nil, err
	}
	var out []float32
	switch t.DType {
	case safetensors.F32:
		for ; len(data) > 0; data = data[4:] {
			out = append(out, math.Float32frombits(binary.LittleEndian.Uint32(data)))
		}
	case safetensors.BF16:
		for ; len(data) > 0; data = data[2:] {
			out = append(out, math.Float32frombits(uint32(binary.LittleEndian.Uint16(data))<<16))
		}
	case safetensors.F16:
		for ; len(data) > 0; data = data[2:] {
			out = append(out, half(binary.LittleEndian.Uint16(data)))
		}
	default:
		return nil, fmt.Errorf("elements of type %s are no weights", t.DType)
	}
	return out, nil
}

// half widens an IEEE binary16 number by the bits of binary32.
func half(h uint16) float32 {
	sign, exponent, fraction := uint32(h>>15)<<31, uint32(h>>10&31), uint32(h&0x3ff)
	switch exponent {
	case 0: // fraction·2^−24
		v := float32(fraction) / (1 << 24)
		return math.Float32frombits(math.Float32bits(v) | sign)
	case 31:
		return math.Float32frombits(sign | 0xff<<23 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
}
