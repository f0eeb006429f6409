package export

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/sdk/spec"
)

// compressedPlan adds packed weights to a hubPlan.
type compressedPlan struct {
	*hubPlan
	globals map[string]nvfp4Scales // by parameter
}

func planCompressed(m *Model, o Options) (*Plan, error) {
	hub, parts, err := newHubPlan(m, o)
	if err != nil {
		return nil, err
	}
	p := &compressedPlan{hubPlan: hub, globals: map[string]nvfp4Scales{}}
	hub.packed = p.tensors
	unpacked, err := p.pack(parts, o, layout{
		unpacked: func(part part, w weight) error {
			if part.Param.Role != architecture.RoleMatrix {
				return errors.New("only linear layers of transformer blocks can be packed, not the head")
			}
			return notRotated(w)
		},
		types: func(w weight) []string {
			if w.grid.Numbers.Format == spec.FormatE2M1 {
				return []string{typeMXFP4, typeNVFP4}
			}
			return []string{typeInt4, typeInt8}
		},
		check: func(part part, w weight, typ string) error {
			s, err := schemeOf(w.grid, typ, o.Inexact)
			if err == nil && typ == typeNVFP4 {
				p.globals[part.Param.Name], err = nvfp4Of(w.grid)
			}
			p.schemes[part.Tensor] = s
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	for _, s := range p.schemes {
		p.fourBitFloats = p.fourBitFloats || s.float()
	}
	p.quantization = map[string]any{"quantization_config": p.quantizationConfig()}
	return p.plan(), unpacked
}

func (p *compressedPlan) tensors(t Stored, s scheme) []safetensors.Tensor {
	rows, columns := t.Shape[0], t.Shape[1]
	grid := func() (*Grid, error) {
		g, err := p.gridOf(t)
		if err != nil {
			return nil, err
		}
		if s.float() {
			return g.floats()
		}
		return g.integers()
	}
	if s.float() {
		pack := func(g *Grid) ([]uint8, error) { return packE2M1(g.Codes), nil }
		codes := ofGrid(t.Name+"_packed", []int{rows, columns / 2}, grid, pack)
		shape := []int{rows, columns / s.group}
		if s.typ == typeMXFP4 {
			return []safetensors.Tensor{codes, ofGrid(t.Name+"_scale", shape, grid, mxfp4Exponents)}
		}
		two := p.globals[t.part.Param.Name]
		scales := ofGrid(t.Name+"_scale", shape, grid, two.of)
		scales.DType = safetensors.F8E4M3
		global := func() ([]float32, error) { return []float32{two.global}, nil }
		return []safetensors.Tensor{
			codes, scales, safetensors.Lazy(t.Name+"_global_scale", []int{1}, global),
		}
	}
	groups, low := 1, int32(-1)<<(s.bits()-1)
	if s.group > 0 {
		groups = columns / s.group
	}
	return []safetensors.Tensor{
		ofGrid(t.Name+"_packed", []int{rows, (columns*s.bits() + 31) / 32}, grid,
			func(g *Grid) ([]int32, error) { return packWords(g.Codes, columns, s.bits(), low), nil }),
		ofGrid(t.Name+"_scale", []int{rows, groups}, grid,
			func(g *Grid) ([]float32, error) { return g.Scales, nil }),
		safetensors.Lazy(t.Name+"_shape", []int{2},
			func() ([]int64, error) { return []int64{int64(rows), int64(columns)}, nil }),
	}
}

// ofGrid returns a tensor whose values are computed from a grid when the tensor is written.
func ofGrid[G any, T safetensors.Element](name string, shape []int, grid func() (G, error),
	values func(G) ([]T, error)) safetensors.Tensor {
	return safetensors.Lazy(name, shape, func() ([]T, error) {
		g, err := grid()
		if err != nil {
			return nil, err
		}
		return values(g)
	})
}

// quantizationConfig returns the value of quantization_config in config.json. A single scheme
// applies to all linear layers except the listed ones; if there are several, each lists its layers.
func (p *compressedPlan) quantizationConfig() map[string]any {
	modules := map[scheme][]string{}
	ignore := []string{"lm_head"}
	for _, t := range p.stored {
		module := strings.TrimSuffix(t.Name, ".weight")
		if s, ok := p.schemes[t.Name]; ok {
			modules[s] = append(modules[s], module)
		} else if param := t.part.Param; param.Quantized && param.Role == architecture.RoleMatrix {
			ignore = append(ignore, module) // a linear layer that is not packed
		}
	}
	groups, format := map[string]any{}, ""
	schemes := slices.SortedFunc(maps.Keys(modules), func(s, t scheme) int {
		return strings.Compare(s.String(), t.String())
	})
	for i, s := range schemes {
		targets := modules[s]
		if len(modules) == 1 {
			targets = []string{"Linear"}
		}
		if format != "" && format != s.format() {
			format = "mixed-precision"
		} else {
			format = s.format()
		}
		groups[fmt.Sprintf("group_%d", i)] = map[string]any{
			"targets": targets, "format": s.format(), "weights": s.weights(),
			"input_activations": nil, "output_activations": nil,
		}
	}
	return map[string]any{
		"quant_method": "compressed-tensors", "format": format, "quantization_status": "compressed",
		"config_groups": groups, "ignore": ignore, "kv_cache_scheme": nil,
		"global_compression_ratio": nil,
	}
}
