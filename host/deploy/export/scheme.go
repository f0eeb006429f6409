package export

import (
	"errors"
	"fmt"

	"github.com/cage-qat/cage/host/deploy/export/pack"
)

// The types in which compressed-tensors stores weights, as Options.Type names them.
const (
	typeInt4  = "int4"
	typeInt8  = "int8"
	typeMXFP4 = "mxfp4"
	typeNVFP4 = "nvfp4"
)

// scheme is how compressed-tensors stores a weight.
type scheme struct {
	typ   string
	group int // elements that share a scale; 0: a row
}

// Blocks of the four-bit floats.
const (
	mxfp4Block = 32
	nvfp4Block = 16
)

func (s scheme) String() string {
	if s.group == 0 {
		return s.typ + ", a scale for each row"
	}
	return fmt.Sprintf("%s, a scale for %d elements", s.typ, s.group)
}

func (s scheme) bits() int {
	if s.typ == typeInt8 {
		return 8
	}
	return 4
}

func (s scheme) float() bool { return s.typ == typeMXFP4 || s.typ == typeNVFP4 }

// format is the name of the layout.
func (s scheme) format() string {
	if s.float() {
		return s.typ + "-pack-quantized"
	}
	return "pack-quantized"
}

// weights is the entry "weights" of a group of the configuration.
func (s scheme) weights() map[string]any {
	out := map[string]any{
		"num_bits": s.bits(), "type": "int", "symmetric": true, "strategy": "channel", "group_size": nil, "dynamic": false,
	}
	if s.group > 0 {
		out["strategy"], out["group_size"] = "group", s.group
	}
	switch s.typ {
	case typeMXFP4:
		out["type"], out["scale_dtype"] = "float", "torch.uint8"
	case typeNVFP4:
		out["type"], out["strategy"], out["scale_dtype"] = "float", "tensor_group", "torch.float8_e4m3fn"
	}
	return out
}

// chooseScheme finds the scheme for a grid. With a type it is that or none.
func chooseScheme(g *Grid, typ string, inexact bool) (scheme, error) {
	if typ != "" {
		s, err := schemeOf(g, typ, inexact)
		if err != nil {
			err = fmt.Errorf("as %s: %w", typ, err)
		}
		return s, err
	}
	types := []string{typeInt4, typeInt8}
	if g.E2M1 {
		types = []string{typeMXFP4, typeNVFP4}
	}
	var all []error
	for _, t := range types {
		s, err := schemeOf(g, t, inexact)
		if err == nil {
			return s, nil
		}
		all = append(all, fmt.Errorf("as %s: %w", t, err))
	}
	return scheme{}, errors.Join(all...)
}

// schemeOf checks that a type holds a grid.
func schemeOf(g *Grid, typ string, inexact bool) (scheme, error) {
	switch typ {
	case typeInt4, typeInt8:
		return integerScheme(g, typ)
	case typeMXFP4:
		_, err := mxfp4Exponents(g)
		return scheme{typ, mxfp4Block}, err
	case typeNVFP4:
		s, err := nvfp4Of(g)
		if err == nil && !s.exact && !inexact {
			err = fmt.Errorf("its scales are not E4M3 numbers over one float32: the quantizer nvfp4 makes such with scale_form = \"encode\"; " +
				"--type int8 is exact, --inexact takes the nearest")
		}
		return scheme{typ, nvfp4Block}, err
	}
	return scheme{}, fmt.Errorf("there are %s, %s, %s and %s", typeInt4, typeInt8, typeMXFP4, typeNVFP4)
}

func integerScheme(g *Grid, typ string) (scheme, error) {
	integers, err := g.integers()
	if err != nil {
		return scheme{}, err
	}
	s := scheme{typ: typ}
	if bits := integers.bits(); bits == 0 || bits > s.bits() {
		return s, fmt.Errorf("its codes do not fit into %d bits", s.bits())
	}
	if g.Group < g.Columns {
		s.group = g.Group
	}
	return s, nil
}

// mxfp4Exponents are the scales as exponents.
func mxfp4Exponents(g *Grid) ([]byte, error) {
	g, err := floatBlocks(g, mxfp4Block)
	if err != nil {
		return nil, err
	}
	out := make([]byte, len(g.Scales))
	for i, s := range g.Scales {
		var ok bool
		if out[i], ok = pack.E8M0(s); !ok {
			return nil, fmt.Errorf("its scale %v is no power of two from 2^-127 to 2^127", s)
		}
	}
	return out, nil
}

// nvfp4Of are the scales of a whole weight on two levels.
func nvfp4Of(g *Grid) (nvfp4Scales, error) {
	g, err := floatBlocks(g, nvfp4Block)
	if err != nil {
		return nvfp4Scales{}, err
	}
	s, ok := findNVFP4(g.Scales)
	if !ok {
		err = fmt.Errorf("its scales are negative, or too small for a global scale")
	}
	return s, err
}

// floatBlocks cuts the groups of a grid of E2M1 into blocks.
func floatBlocks(g *Grid, block int) (*Grid, error) {
	if !g.E2M1 {
		return nil, fmt.Errorf("its numbers are integers, not those of E2M1")
	}
	return g.split(block)
}
