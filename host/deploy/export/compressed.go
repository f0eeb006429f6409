package export

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/spec"
)

const headTensor = "lm_head.weight"

func planCompressed(m *Model, o Options) (*Plan, error) {
	p, parts, err := newHubPlan(m, o, inTransformers)
	if err != nil {
		return nil, err
	}
	p.packed = p.compressedTensors
	if m.Activation != nil {
		p.inputs = inputsByParam(m)
	}
	unpacked, err := p.pack(parts, o, layout{
		fused: fusedByVLLM.Replace,
		unpacked: func(part part, w weight) error {
			if part.Param.Role == architecture.RoleEmbedding {
				return errors.New("only linear layers can be packed, not the embedding")
			}
			return notRotated(w)
		},
		types: func(w weight) []string {
			if w.grid.Numbers.Format == spec.FormatE2M1 {
				return []string{typeMXFP4, typeNVFP4}
			}
			return []string{typeInt4, typeInt8}
		},
		pack: func(part part, w weight, typ string) (packing, error) {
			if typ != typeNVFP4 {
				s, err := schemeOf(w.grid, typ)
				return packing{scheme: s}, err
			}
			global, err := p.globalScale(part, w, parts, o.Inexact)
			return packing{scheme: scheme{group: nvfp4Block}, global: global}, err
		},
	})
	if err != nil {
		return nil, err
	}
	plan := p.plan()
	plan.Inputs = map[string]bool{}
	for _, t := range p.stored {
		if t.packing != nil {
			p.fourBitFloats = p.fourBitFloats || t.packing.float()
			plan.Inputs[t.Name] = t.packing.inputs
			if t.packing.zeros {
				plan.Notes = []string{zerosNote}
			}
		}
	}
	p.entries = map[string]any{"quantization_config": p.compressedConfig()}
	return plan, unpacked
}

// zerosNote is true of checkpoints that compressed-tensors itself has packed, too: on the device
// "meta", where transformers makes the model, its compressor leaves the shape of zero points.
const zerosNote = "transformers 5.23 with compressed-tensors 0.20 refuses packed zero points, which " +
	"vLLM expects"

// inputsByParam returns a function that compares the inputs of a weight's layer in the run with
// those of programs, if they are described as having the type of the weight. The parts of a weight
// have the same inputs and type.
func inputsByParam(m *Model) func(param, typ string) (inputs, error) {
	known := map[string]inputs{} // by parameter
	return func(param, typ string) (inputs, error) {
		if in, ok := known[param]; ok {
			return in, nil
		}
		a, err := m.Activation(param)
		if err != nil || a == nil {
			return inputs{}, err
		}
		known[param], err = inputsOf(a, typ)
		return known[param], err
	}
}

// fusedByVLLM returns what vLLM fuses with a tensor: their schemes must be equal
// (should_ignore_layer and _match_fused_layer in vLLM 0.32). Queries, keys and values, which it
// also fuses, are parts of one parameter here.
var fusedByVLLM = strings.NewReplacer("gate_proj", "up_proj", "up_proj", "gate_proj")

// globalScale returns the global scale of a weight in NVFP4. The gate and up projections of a layer
// share it: vLLM divides both by the larger of the two, and leaves the scales of blocks as
// they are (CompressedTensorsW4A4Fp4.process_weights_after_loading in vLLM 0.32).
func (p *hubPlan) globalScale(
	t part, w weight, parts []part, inexact bool,
) (float32, error) {
	grids, joined := []*Grid{w.grid}, ""
	other := fusedByVLLM.Replace(t.Tensor)
	for _, o := range parts {
		if o.Tensor != other || other == t.Tensor {
			continue
		}
		sibling, err := p.source.weight(o.Param)
		if err != nil {
			return 0, err
		}
		if sibling.grid == nil {
			continue
		}
		if _, err := floatBlocks(sibling.grid, nvfp4Block); err == nil {
			grids = append(grids, sibling.grid)
			joined = ", the same for gate_proj and up_proj, which vLLM fuses"
		}
	}
	global, exact, err := nvfp4Of(grids...)
	if err == nil && !exact && !inexact {
		err = fmt.Errorf("scales are not E4M3 numbers divided by one float32%s; those of the quantizer "+
			`nvfp4 with scale_form = "power_of_two" are, unless two weights are very different; `+
			"--type int8 is exact, --inexact rounds them", joined)
	}
	return global, err
}

func (p *hubPlan) compressedTensors(t Stored) []safetensors.Tensor {
	rows, columns, s := t.Shape[0], t.Shape[1], t.packing.scheme
	grid := p.gridOf(t, (*Grid).integers)
	if s.float() {
		pack := func(g *Grid) ([]uint8, error) { return packE2M1(g.Codes), nil }
		codes := ofGrid(t.Name+"_packed", []int{rows, columns / 2}, grid, pack)
		shape := []int{rows, columns / s.group}
		if s.typ == typeMXFP4 {
			return []safetensors.Tensor{codes, ofGrid(t.Name+"_scale", shape, grid, mxfp4Exponents)}
		}
		scales := ofGrid(t.Name+"_scale", shape, grid,
			func(g *Grid) ([]byte, error) { return nvfp4Codes(g, t.packing.global) })
		scales.DType = safetensors.F8E4M3
		list := []safetensors.Tensor{codes, scales, safetensors.Lazy(t.Name+"_global_scale", []int{1},
			func() ([]float32, error) { return []float32{t.packing.global}, nil })}
		if s.inputs {
			input := func() ([]float32, error) { return []float32{t.packing.globalInput}, nil }
			name := strings.TrimSuffix(t.Name, "weight") + "input_global_scale"
			list = append(list, safetensors.Lazy(name, []int{1}, input))
		}
		return list
	}
	return packIntegers(t.Name, rows, columns, s, grid)
}

func packIntegers(
	name string, rows, columns int, s scheme, grid func() (*Grid, error),
) []safetensors.Tensor {
	groups, low := 1, int32(-1)<<(s.bits()-1)
	if s.group > 0 {
		groups = columns / s.group
	}
	list := []safetensors.Tensor{
		ofGrid(name+"_packed", []int{rows, (columns*s.bits() + 31) / 32}, grid,
			func(g *Grid) ([]int32, error) {
				if s.zeros {
					codes, _ := g.fromLeast()
					return packWords(codes, columns, s.bits(), 0), nil
				}
				return packWords(g.Codes, columns, s.bits(), low), nil
			}),
		ofGrid(name+"_scale", []int{rows, groups}, grid,
			func(g *Grid) ([]float32, error) { return g.Scales, nil }),
		safetensors.Lazy(name+"_shape", []int{2},
			func() ([]int64, error) { return []int64{int64(rows), int64(columns)}, nil }),
	}
	if s.zeros { // the codes of 0, packed along the columns
		words := (rows*s.bits() + 31) / 32
		list = append(list, ofGrid(name+"_zero_point", []int{words, groups}, grid,
			func(g *Grid) ([]int32, error) {
				_, least := g.fromLeast()
				zeros := lists.Map(transposed(least, groups), func(c int32) int32 { return -c })
				return transposed(packWords(zeros, rows, s.bits(), 0), words), nil
			}))
	}
	return list
}

// ofGrid returns a tensor whose values are computed from a grid when the tensor is written.
func ofGrid[T safetensors.Element](name string, shape []int, grid func() (*Grid, error),
	values func(*Grid) ([]T, error)) safetensors.Tensor {
	return safetensors.Lazy(name, shape, func() ([]T, error) {
		g, err := grid()
		if err != nil {
			return nil, err
		}
		return values(g)
	})
}

// compressedConfig returns the value of quantization_config in config.json. A single scheme
// applies to all linear layers except the listed ones; if there are several, each lists its layers.
func (p *hubPlan) compressedConfig() map[string]any {
	modules := map[scheme][]string{}
	ignore := []string{}
	packedHead := slices.ContainsFunc(p.stored, func(t Stored) bool {
		return t.Name == headTensor && t.packing != nil
	})
	if !packedHead {
		ignore = append(ignore, strings.TrimSuffix(headTensor, ".weight"))
	}
	for _, t := range p.stored {
		module := strings.TrimSuffix(t.Name, ".weight")
		if t.packing != nil {
			modules[t.packing.scheme] = append(modules[t.packing.scheme], module)
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
			if packedHead { // which is no Linear in vLLM
				targets = append(targets, strings.TrimSuffix(headTensor, ".weight"))
			}
		}
		if format != "" && format != s.format() {
			format = "mixed-precision"
		} else {
			format = s.format()
		}
		groups[fmt.Sprintf("group_%d", i)] = map[string]any{
			"targets": targets, "format": s.format(), "weights": s.weights(),
			"input_activations": s.activations(), "output_activations": nil,
		}
	}
	return map[string]any{
		"quant_method": "compressed-tensors", "format": format, "quantization_status": "compressed",
		"config_groups": groups, "ignore": ignore, "kv_cache_scheme": nil,
		"global_compression_ratio": nil,
	}
}
