package export

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/sdk/spec"
)

// planMLX plans a directory as mlx-lm writes it. A packed weight has one of two modes of MLX: mxfp4
// or affine.
func planMLX(m *Model, o Options) (*Plan, error) {
	p, parts, err := newHubPlan(m, o, inMLX)
	if err != nil {
		return nil, err
	}
	p.packed = p.mlxTensors
	unpacked, err := p.pack(parts, o, layout{
		unpacked: func(_ part, w weight) error { return notRotated(w) },
		types: func(w weight) []string {
			if w.grid.Numbers.Format == spec.FormatE2M1 {
				return []string{typeMXFP4, typeInt8}
			}
			return []string{typeInt2, typeInt4, typeInt8}
		},
		pack: func(_ part, w weight, typ string) (packing, error) {
			s, err := p.mlxScheme(w, typ, o.Inexact)
			return packing{scheme: s}, err
		},
	})
	if err != nil {
		return nil, err
	}
	plan := p.plan()
	p.entries = mlxKeys(m.Settings)
	if bytes.Contains(m.Description.Config, []byte(`"ministral"`)) { // the same without windows
		p.entries["model_type"] = "mistral"
	}
	p.entries["quantization"] = p.mlxConfig()
	p.entries["quantization_config"] = p.entries["quantization"]
	plan.Notes = mlxNotes(m)
	return plan, unpacked
}

func (p *hubPlan) mlxScheme(w weight, typ string, inexact bool) (scheme, error) {
	switch s := (scheme{typ: typ, group: mxfp4Block}); typ {
	case typeMXFP4:
		_, err := mxfp4Exponents(w.grid)
		if err == nil && !inexact && !holds(p.float, w.values) {
			err = fmt.Errorf("MLX converts the weights to %s, which does not represent all values: "+
				"--dtype f32 is exact", p.float)
		}
		return s, err
	case typeInt2, typeInt4, typeInt8:
		a, exact, err := affineOf(w.grid, s.bits())
		if err == nil && !exact && !inexact {
			err = errors.New("MLX computes scale·code + bias, which is rounded for some scales, but not " +
				`for those of a quantizer with scale_dtype = "f16"; --inexact allows it`)
		}
		if err == nil {
			s.group = a.Group
		}
		return s, err
	}
	return scheme{}, fmt.Errorf("there is no type %q: want one of %s, %s, %s, %s",
		typ, typeInt2, typeInt4, typeInt8, typeMXFP4)
}

// affineOf returns the grid in groups of MLX, with codes that are not negative, and minima, the
// biases of MLX: an element is scale·code + bias. exact reports whether the product and the sum are
// exact for all codes, so that it does not matter whether a device rounds the product.
func affineOf(g *Grid, bits int) (affine *Grid, exact bool, err error) {
	minima := g.Minima
	if minima == nil {
		g, err = g.integers()
	}
	if err != nil {
		return nil, false, err
	}
	low, high, step := g.Numbers.Min, g.Numbers.Max, g.Numbers.Step
	for i, c := range g.Codes {
		if g.Scales[i/g.Group] != 0 && !g.Numbers.Holds(c) { // a zero that is not in the grid
			low, high, step = min(low, 0), max(high, 0), 1
			break
		}
	}
	n, span := (high-low)/step+1, g.Numbers.Span
	if span > 0 {
		n = span + 1
	}
	if n > 1<<bits {
		return nil, false, fmt.Errorf("%d numbers from %d to %d do not fit into %d bits",
			n, low, high, bits)
	}
	group := 32
	for g.Group%(2*group) == 0 && group < 128 { // the groups of MLX
		group *= 2
	}
	if g, err = g.split(group); err != nil {
		return nil, false, err
	}
	var least []int32
	if span > 0 {
		_, least = g.fromLeast()
	}
	out := *g
	if minima == nil {
		out.Numbers = spec.Grid{Format: spec.FormatAffine, Max: n - 1, Step: 1, Group: group}
		out.Codes = make([]int32, len(g.Codes))
		out.Scales, out.Minima = make([]float32, len(g.Scales)), make([]float32, len(g.Scales))
	}
	exact = true
	// Products and sums are integers times g's scale. The largest odd one needs the most bits.
	largest := max(-low, high, high-low)
	for i, s := range g.Scales {
		if s == 0 {
			continue
		}
		for _, n := range []int{largest, (largest - 1) | 1} {
			v := float64(s) * float64(n)
			exact = exact && float64(float32(v)) == v
		}
		if minima != nil { // a sum with an exact product is rounded once
			continue
		}
		low := int32(low)
		if least != nil {
			low = least[i]
		}
		out.Scales[i], out.Minima[i] = s*float32(step), s*float32(low)
		for j := i * group; j < (i+1)*group; j++ {
			out.Codes[j] = (g.Codes[j] - low) / int32(step)
		}
	}
	return &out, exact, nil
}

func (p *hubPlan) mlxTensors(t Stored) []safetensors.Tensor {
	module, rows, columns := strings.TrimSuffix(t.Name, ".weight"), t.Shape[0], t.Shape[1]
	s := t.packing.scheme
	grid := p.gridOf(t, func(g *Grid) (*Grid, error) {
		g, _, err := affineOf(g, s.bits())
		return g, err
	})
	words := ofGrid(t.Name, []int{rows, columns * s.bits() / 32}, grid,
		func(g *Grid) ([]int32, error) { return packWords(g.Codes, columns, s.bits(), 0), nil })
	words.DType = safetensors.U32
	shape := []int{rows, columns / s.group}
	if s.float() {
		return []safetensors.Tensor{words, ofGrid(module+".scales", shape, grid, mxfp4Exponents)}
	}
	return []safetensors.Tensor{words,
		ofGrid(module+".scales", shape, grid,
			func(g *Grid) ([]float32, error) { return g.Scales, nil }),
		ofGrid(module+".biases", shape, grid,
			func(g *Grid) ([]float32, error) { return g.Minima, nil }),
	}
}

// mlxConfig returns the scheme of the first packed module, and the modules with others. mlx-lm
// loads modules without scales as floats.
func (p *hubPlan) mlxConfig() (config map[string]any) {
	var first scheme
	for _, t := range p.stored {
		if t.packing == nil || t.packing.scheme == first {
			continue
		}
		s := t.packing.scheme
		entry := map[string]any{"group_size": s.group, "bits": s.bits(), "mode": "affine"}
		if s.float() {
			entry["mode"] = s.typ
		}
		if config == nil {
			first, config = s, entry
		} else {
			config[strings.TrimSuffix(t.Name, ".weight")] = entry
		}
	}
	return config
}
