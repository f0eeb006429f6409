// Command mxfp4 is the MXFP4 format of the OCP Microscaling specification 1.0 as a
// plugin: blocks of 32 entries of a row share a scale that is a power of two (E8M0),
// and each entry is a float of four bits (E2M1).
//
// With V the entries of a block and X its scale,
//
//	P = E2M1(V/X) ; V̂ = X·P
//
// The rules for X are in scale.go; their sources are the OCP specification, Quartet and
// FP-Quant (IST-DASLab). The entries may be rotated by a block Hadamard matrix before
// they are divided into blocks, z = Hx, and rotated back afterwards, x̂ = Hᵀẑ. The
// backward pass is dx = Hᵀ(M ⊙ H·dx̂), where M is the mask.
package main

import (
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
)

// block is the number of entries that share a scale.
const block = 32

// mxfp4 implements [sdk.Quantizer].
type mxfp4 struct{}

var (
	_ sdk.Quantizer = mxfp4{}
	_ sdk.Packer    = mxfp4{}
)

// The values of the parameters scale_rule and mask.
const (
	ruleOCP      = "ocp"
	ruleRound    = "round"
	ruleAbsMax34 = "absmax34"
	ruleQuest    = "quest"

	maskAuto  = "auto"
	maskNone  = "none"
	maskClip  = "clip"
	maskTrust = "trust"
)

// Describe declares the parameters.
func (mxfp4) Describe() sdk.Description {
	return sdk.Description{
		Name:    "mxfp4",
		Version: "1.0.0",
		Doc: "MXFP4 (OCP Microscaling 1.0): floats of four bits (E2M1), a power of two as the scale of each 32 entries of a row; " +
			"scale rules of the specification and of Quartet and FP-Quant.",
		Parameters: []sdk.Parameter{
			sdk.Choice("scale_rule", ruleOCP, []string{ruleOCP, ruleRound, ruleAbsMax34, ruleQuest},
				"ocp: the power of two below the maximum, over 4; round: the maximum is rounded to one binary digit behind the point before, as programs that serve such models do with activations; absmax34: 4/3 of it, so that nothing saturates; quest: a power of two from the standard deviation"),
			sdk.Choice("ties", string(microscaling.TiesEven), microscaling.TiesNames(),
				"where a value half way between two levels goes: to the even code, or to the larger (away) or smaller (down) magnitude"),
			sdk.Choice("mask", maskAuto, []string{maskAuto, maskNone, maskClip, maskTrust},
				"entries that pass gradients: all, those below the largest level, those within 1 of their level in units of the scale; auto is clip for the quest rule and none for the others"),
			sdk.Choice("rotation", microscaling.NoRotation, []string{microscaling.NoRotation, "32", "64", "128"}, "block of the Hadamard rotation, which has to divide the row"),
		},
	}
}

// Quantize writes the program of one site.
func (mxfp4) Quantize(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	rotation, err := microscaling.NewRotation(site.Text("rotation"), site.RowLen())
	if err != nil {
		return sdk.Quantized{}, err
	}
	z := rotation.Apply(x)
	blocks := microscaling.NewBlocks(site.Shape, block)
	v := blocks.Split(z)
	s := newScale(v, site.Text("scale_rule"))
	ratio := v.Mul(s.inverse)
	rounded := microscaling.RoundE2M1(ratio, microscaling.Ties(site.Text("ties")))
	codes := s.finite.Select(microscaling.EncodeE2M1(rounded, v), b.ConstInt(0))
	out := sdk.Quantized{
		Value: rotation.Apply(blocks.Join(rounded.Mul(s.scale))),
		Codes: blocks.Join(codes),
		Scale: s.scale,
	}
	if kind := maskKind(site); kind == maskNone {
		// M is constant along each block of the rotation, so the two rotations cancel.
		out.Mask = blocks.Spread(s.finite)
		out.Surrogate = blocks.Join(s.finite.Select(blocks.Split(x), b.Const(0)))
	} else {
		inside := within(ratio, kind)
		out.Mask = blocks.Join(inside)
		out.Surrogate = rotation.Apply(blocks.Join(inside.Select(v, b.Const(0))))
	}
	return out, nil
}

// Unpack writes X·P, rotated back.
func (mxfp4) Unpack(_ *program.Builder, codes, scale program.Value, site sdk.Site) (program.Value, error) {
	return microscaling.Unpack(codes, scale, site, block)
}

// maskKind is the mask with auto resolved.
func maskKind(site sdk.Site) string {
	switch kind := site.Text("mask"); {
	case kind != maskAuto:
		return kind
	case site.Text("scale_rule") == ruleQuest:
		return maskClip
	}
	return maskNone
}

// within is the mask for ratios V/X; it is false where they are NaN. clip is |V/X| < 6,
// and trust is |V/X − P| ≤ 1. The latter is the same as |V/X| ≤ 7: no number up to 6 is
// farther than 1 from its level, whatever the rule for ties, and above 6 the level is 6.
func within(ratio program.Value, kind string) program.Value {
	m, b := ratio.Abs(), ratio.Builder()
	if kind == maskClip {
		return m.Lt(b.Const(microscaling.LargestE2M1))
	}
	return m.Le(b.Const(microscaling.LargestE2M1 + 1))
}

func main() { sdk.ServeQuantizer(mxfp4{}) }
