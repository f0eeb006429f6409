package export

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/cage-qat/cage/internal/lists"
)

// Values of Options.Type: the types in which compressed-tensors and MLX store weights.
const (
	typeInt2  = "int2"
	typeInt4  = "int4"
	typeInt8  = "int8"
	typeMXFP4 = "mxfp4"
	typeNVFP4 = "nvfp4"
)

type scheme struct {
	typ    string
	group  int  // elements that share a scale; 0: all of a row
	zeros  bool // there is a zero point for each scale
	inputs bool // the layer's inputs are quantized to the same type
}

// Block sizes of the four-bit float types.
const (
	mxfp4Block = 32
	nvfp4Block = 16
)

func (s scheme) String() string {
	text := s.typ + ", a scale for each row"
	if s.group > 0 {
		text = fmt.Sprintf("%s, a scale for %d elements", s.typ, s.group)
	}
	if s.zeros {
		text += ", with zero points"
	}
	if s.inputs {
		text += ", and of inputs"
	}
	return text
}

func (s scheme) bits() int {
	switch s.typ {
	case typeInt2:
		return 2
	case typeInt8:
		return 8
	}
	return 4
}

func (s scheme) float() bool { return s.typ == typeMXFP4 || s.typ == typeNVFP4 }

func (s scheme) format() string {
	if s.float() {
		return s.typ + "-pack-quantized"
	}
	return "pack-quantized"
}

// weights returns the value of "weights" in a group of quantization_config.
func (s scheme) weights() map[string]any {
	out := map[string]any{
		"num_bits": s.bits(), "type": "int", "symmetric": !s.zeros, "strategy": "channel",
		"group_size": nil, "dynamic": false,
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

// activations returns the value of "input_activations" in a group of quantization_config.
func (s scheme) activations() any {
	if !s.inputs {
		return nil
	}
	out := s.weights()
	if s.typ == typeMXFP4 {
		out["dynamic"] = true
	} else {
		out["dynamic"] = "local"
	}
	return out
}

// schemeOf returns the scheme of a type other than nvfp4.
func schemeOf(g *Grid, typ string) (scheme, error) {
	switch typ {
	case typeInt4, typeInt8:
		integers, err := g.integers()
		if err != nil {
			return scheme{}, err
		}
		s := scheme{typ: typ}
		half, span := 1<<(s.bits()-1), integers.Numbers.Span
		fits := integers.fits(-half, half-1)
		if s.zeros = !fits && span > 0 && span < 2*half; !fits && !s.zeros {
			return s, fmt.Errorf("codes from %d to %d do not fit into %d bits",
				integers.Numbers.Min, integers.Numbers.Max, s.bits())
		}
		if g.Group < g.Columns || g.Group == g.Numbers.Group { // also if a row is one group
			s.group = g.Group
		}
		return s, nil
	case typeMXFP4:
		_, err := mxfp4Exponents(g)
		return scheme{typ: typ, group: mxfp4Block}, err
	}
	return scheme{}, fmt.Errorf("there is no type %q: want one of %s, %s, %s, %s",
		typ, typeInt4, typeInt8, typeMXFP4, typeNVFP4)
}

func mxfp4Exponents(g *Grid) ([]byte, error) {
	g, err := mxfp4Blocks(g)
	if err != nil {
		return nil, err
	}
	out := make([]byte, len(g.Scales))
	for i, s := range g.Scales {
		if out[i], err = codeE8M0(s); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// nvfp4Of returns the global scale that whole weights share, and whether it is exact.
func nvfp4Of(grids ...*Grid) (global float32, exact bool, err error) {
	var scales []float32
	for _, g := range grids {
		g, err := floatBlocks(g, nvfp4Block)
		if err != nil {
			return 0, false, err
		}
		scales = append(scales, g.Scales...)
	}
	return findNVFP4(scales)
}

// floatBlocks converts a grid to E2M1 codes and splits its groups into blocks.
func floatBlocks(g *Grid, block int) (*Grid, error) {
	g, err := g.floats()
	if err != nil {
		return nil, err
	}
	return g.split(block)
}

// mxfp4Blocks splits a grid into MXFP4 blocks. Their scales cannot be 0, so a block of zeros gets
// the smallest scale.
func mxfp4Blocks(g *Grid) (*Grid, error) {
	g, err := floatBlocks(g, mxfp4Block)
	if err != nil || !slices.Contains(g.Scales, 0) {
		return g, err
	}
	out := *g
	out.Scales = lists.Map(g.Scales, func(s float32) float32 { return cmp.Or(s, 0x1p-127) })
	return &out, nil
}

// maxUlps is the number of ulps by which an estimate is varied in either direction: it is computed
// from a quotient that was rounded once.
const maxUlps = 2

// around returns the numbers within maxUlps of an estimate.
func around(estimate float32) (list []float32) {
	for range maxUlps {
		estimate = math.Nextafter32(estimate, 0)
	}
	for range 2*maxUlps + 1 {
		list = append(list, estimate)
		estimate = math.Nextafter32(estimate, math.MaxFloat32)
	}
	return list
}

// findNVFP4 finds the two levels of scales from the scales of a whole tensor. An element in NVFP4,
// as compressed-tensors stores it, is
//
//	E2M1(code) · float32(E4M3(block) / global)
//
// so global is the reciprocal of NVFP4's usual global scale. The largest scale is one of the 126
// positive E4M3 numbers divided by the global scale, so there are few candidates for the global
// scale; the first that reproduces all scales is chosen, a power of two if possible. If none does,
// exact is false: the largest scale is mapped to 448 and the others are rounded to nearest.
func findNVFP4(scales []float32) (global float32, exact bool, err error) {
	set := map[float32]bool{}
	for _, s := range scales {
		set[s] = true
	}
	distinct := slices.Sorted(maps.Keys(set))
	largest := distinct[len(distinct)-1]
	if distinct[0] == 0 && largest == 0 { // a tensor of zeros
		return 1, true, nil
	}
	top := e4m3Numbers[len(e4m3Numbers)-1]
	_, exponent := math.Frexp(float64(top / largest))
	candidates := []float32{float32(math.Ldexp(0.5, exponent))}
	for _, block := range slices.Backward(e4m3Numbers[1:]) {
		candidates = append(candidates, around(block/largest)...)
	}
	for _, global := range candidates {
		different := func(s float32) bool { return e4m3Numbers[codeNVFP4(s, global)]/global != s }
		if !slices.ContainsFunc(distinct, different) {
			return global, true, nil
		}
	}
	global = top / largest
	if distinct[0] < 0 || global-global != 0 {
		err = errors.New("scales are negative, or too small for a global scale")
	}
	return global, false, err
}

// codeNVFP4 rounds the scale of a block to the nearest E4M3 number for a global scale, ties to the
// even code, as a cast to E4M3 and the nvfp4 plugin do. It returns the code of that number.
func codeNVFP4(scale, global float32) byte {
	return nearestE4M3(float32(float64(scale) * float64(global)))
}

// nearestE4M3 returns the code of the E4M3 number nearest to v, ties to even, at most that of 448.
func nearestE4M3(v float32) byte {
	code, _ := slices.BinarySearch(e4m3Numbers[:], v)
	if code == len(e4m3Numbers) {
		return byte(code - 1)
	}
	if code > 0 {
		below, above := v-e4m3Numbers[code-1], e4m3Numbers[code]-v
		if below < above || below == above && code%2 == 1 {
			code--
		}
	}
	return byte(code)
}

// nvfp4Codes returns the E4M3 codes of the scales of a grid's blocks.
func nvfp4Codes(g *Grid, global float32) ([]byte, error) {
	g, err := floatBlocks(g, nvfp4Block)
	if err != nil {
		return nil, err
	}
	return lists.Map(g.Scales, func(s float32) byte { return codeNVFP4(s, global) }), nil
}
