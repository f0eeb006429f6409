// Command nvfp4 is NVIDIA's NVFP4 format as a plugin: every 16 entries of a row share a
// scale of eight bits (E4M3), the whole tensor has a second scale in binary32, and each
// entry is a float of four bits (E2M1).
//
// With T the tensor and V the entries of a block,
//
//	g  = float32(max|T| / (6·448))
//	sB = E4M3(max|V| / (6·g))
//	P  = E2M1(V/(sB·g)) ; V̂ = P·sB·g
//
// or, where scale_form = "encode", with G = float32(6·448/max|T|),
//
//	sB = E4M3(max|V|/6 · G)
//	P  = E2M1(V/(sB/G)) ; V̂ = P·(sB/G)
//
// The first form is that of NVIDIA's Transformer Engine and of FP-Quant (IST-DASLab), the
// second is that of compressed-tensors. They differ in the last bit of some numbers. The
// entries may be rotated by a block Hadamard matrix before quantization, and rotated back
// afterwards. Gradients pass unchanged.
package main

import (
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
)

// block is the number of entries that share an E4M3 scale.
const block = 16

// nvfp4 implements [sdk.Quantizer].
type nvfp4 struct{}

var (
	_ sdk.Quantizer = nvfp4{}
	_ sdk.Packer    = nvfp4{}
)

// The values of the parameter scale_form.
const (
	formDecode = "decode"
	formEncode = "encode"
)

// Describe declares the parameters.
func (nvfp4) Describe() sdk.Description {
	return sdk.Description{
		Name:    "nvfp4",
		Version: "1.1.0",
		Doc: "NVFP4: floats of four bits (E2M1), an E4M3 scale for each 16 entries of a row and a binary32 scale for the tensor; " +
			"plain straight-through gradient.",
		Parameters: []sdk.Parameter{
			sdk.Choice("ties", string(microscaling.TiesEven), microscaling.TiesNames(),
				"where a value half way between two levels goes: to the even code, or to the larger (away) or smaller (down) magnitude"),
			sdk.Choice("scale_form", formDecode, []string{formDecode, formEncode},
				"decode: a block's scale times the tensor's scale g; encode: over its reciprocal 2688/max, as compressed-tensors and vLLM compute it, which an exact export needs"),
			sdk.Choice("rotation", microscaling.NoRotation, []string{microscaling.NoRotation, "16", "32", "64", "128"}, "block of the Hadamard rotation, which has to divide the row"),
		},
	}
}

// Quantize writes the program of one site. The scale that it returns for each block
// is sB·g, or sB/G.
func (nvfp4) Quantize(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	rotation, err := microscaling.NewRotation(site.Text("rotation"), site.RowLen())
	if err != nil {
		return sdk.Quantized{}, err
	}
	z := rotation.Apply(x)
	blocks := microscaling.NewBlocks(site.Shape, block)
	v := blocks.Split(z)
	s := newScales(v, site.Text("scale_form"))
	rounded := microscaling.RoundE2M1(v.Div(s.divisor), microscaling.Ties(site.Text("ties")))
	codes := s.finite.Select(microscaling.EncodeE2M1(rounded, v), b.ConstInt(0))
	return sdk.Quantized{
		Value:     rotation.Apply(blocks.Join(rounded.Mul(s.scale))),
		Surrogate: s.finite.Select(x, b.Const(0)),
		Codes:     blocks.Join(codes),
		Scale:     s.scale,
		Mask:      s.finite.Broadcast(site.Shape, nil),
		// sB depends only on ratios within the tensor, and g is in proportion to the tensor.
		Homogeneous: true,
	}, nil
}

// Unpack writes P·(sB·g) or P·(sB/G), rotated back.
func (nvfp4) Unpack(_ *program.Builder, codes, scale program.Value, site sdk.Site) (program.Value, error) {
	return microscaling.Unpack(codes, scale, site, block)
}

// scales are the two levels of scales of a tensor.
type scales struct {
	tensor  program.Value // g or G, a scalar
	block   program.Value // sB, float[…,blocks,1]
	scale   program.Value // sB·g or sB/G, in the shape of block; NaN everywhere when the tensor is not finite
	divisor program.Value // scale, but +∞ where it is 0: then every ratio there is 0
	finite  program.Value // bool, a scalar: true if the tensor holds neither NaN nor ±Inf
}

// newScales writes the scales of blocks v, float[…,blocks,16], in the form that
// scale_form names.
//
// g or G is rounded to binary32, as formats store it, whatever the precision of the
// computation: bitcasting it to an integer and back does just that. For a tensor of zeros
// it is 1. A block whose maximum is at most 6·g·2⁻¹⁰ has sB = 0 and becomes zero.
func newScales(v program.Value, form string) scales {
	b := v.Builder()
	var s scales
	largest := v.Abs().MaxRow()
	overall := largest.MaxAll()
	s.finite = overall.IsFinite()
	reach := b.Const(microscaling.LargestE2M1 * microscaling.LargestE4M3)
	sixth := func() program.Value { return largest.Div(b.Const(microscaling.LargestE2M1)) }
	var scale program.Value
	if form == formEncode {
		g := reach.Div(overall).Bitcast(program.Uint).Bitcast(program.Float)
		s.tensor = g.IsFinite().Select(g, b.Const(1)) // where T is zero, or near to it
		s.block = microscaling.RoundE4M3(sixth().Mul(s.tensor))
		scale = s.block.Div(s.tensor)
	} else {
		g := overall.Div(reach).Bitcast(program.Uint).Bitcast(program.Float)
		s.tensor = g.Eq(b.Const(0)).Select(b.Const(1), g)
		s.block = microscaling.RoundE4M3(sixth().Div(s.tensor))
		scale = s.block.Mul(s.tensor)
	}
	s.scale = s.finite.Select(scale, b.Const(math.NaN()))
	s.divisor = s.scale.Eq(b.Const(0)).Select(b.Const(math.Inf(1)), s.scale)
	return s
}

func main() { sdk.ServeQuantizer(nvfp4{}) }
