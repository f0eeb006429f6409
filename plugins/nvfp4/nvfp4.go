// Command nvfp4 implements quantization to NVIDIA's NVFP4 format as a plugin: every 16 entries of a
// row share an 8-bit scale (E4M3), the whole tensor has a second scale in binary32, and each entry
// is a 4-bit float (E2M1). With T the tensor and V the entries of a block,
//
//	g  = float32(max|T| / (6·448))
//	sB = E4M3(max|V| / (6·g))
//	P  = E2M1(V/(sB·g)) ; V̂ = P·sB·g
//
// or, if scale_form = "encode", with G = float32(6·448/max|T|),
//
//	sB = E4M3(max|V|/6 · G)
//	P  = E2M1(V/(sB/G)) ; V̂ = P·(sB/G)
//
// The first form is used by NVIDIA's Transformer Engine and FP-Quant (IST-DASLab), the second by
// compressed-tensors. They differ in the last bit of some numbers. With scale_form =
// "power_of_two", g is the smallest power of two that is at least max|T| / (6·448). Then P·sB·g is
// exact in bfloat16 and in any order of the products, so that every format for NVFP4 holds it. The
// entries may be rotated by a block Hadamard matrix before quantization, and rotated back
// afterwards. Gradients pass unchanged.
//
// The scale of the tensor of an activation may be tracked: then max|T| is the largest magnitude of
// all steps before, as servers have a constant g, and larger entries saturate.
//
// The rule mse is Four Over Six (Cook et al. 2025, arXiv 2512.02010; mit-han-lab/fouroversix
// dadfad69, src/fouroversix/quantize/pytorch/reference.py): each block has two candidate scales,
// which map its maximum to the level 6 or to the level 4, and uses the one with the smaller squared
// error, or 6 if both errors are equal. There are no levels between 4 and 6, so that entries
// slightly below the maximum have smaller errors with 4. The second scale is
// E4M3(1.5·max|V|/(6·g)), and g uses 256 instead of 448, so that the scale is at most 384. With
// stochastic rounding the authors compare two sampled errors; here the errors of rounding to
// nearest are compared, so that the choice of a scale adds no bias.
//
// The other settings are for training in NVFP4 (NVIDIA 2025, arXiv 2509.25149;
// NVIDIA/TransformerEngine d0067d0d, NVFP4BlockScaling in
// transformer_engine/common/recipe/__init__.py and
// transformer_engine/pytorch/custom_recipes/reference_nvfp4.py). With weight_blocks = "16x16" a
// square block of a weight shares sB, so that Q(Wᵀ) = Q(W)ᵀ. In training, stochastic rounding
// rounds V/(sB·g) to one of the two adjacent levels, which is unbiased except where sB was rounded
// down and the largest entries saturate. The rotation, with signs before it, may be limited to the
// operands of the weight gradient.
package main

import (
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
)

const (
	block           = 16  // entries that share an E4M3 scale
	largestExponent = 126 // of a tensor's scale, and of its reciprocal
)

type nvfp4 struct{}

var (
	_ sdk.Quantizer = nvfp4{}
	_ sdk.Packer    = nvfp4{}
	_ sdk.Stateful  = nvfp4{}
	_ sdk.Maximal   = nvfp4{}
)

// Values of the parameters scale_form, tensor_scale, scale_rule (named as in the Four Over Six
// paper's code), weight_blocks and rotated_products, and an additional value of signs.
const (
	formDecode = "decode"
	formEncode = "encode"
	formPower  = "power_of_two"

	scaleCurrent = "current"
	scaleTracked = "tracked"

	ruleSix = "static_6"
	ruleMSE = "mse"

	blocksOfRows = "1x16"
	squareBlocks = "16x16"

	rotateAll            = "all"
	rotateWeightGradient = "weight_gradient"

	signsPublished = "transformer_engine"
)

// publishedSigns are the signs of get_wgrad_sign_vector in reference_nvfp4.py (see above).
var publishedSigns = []float64{1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1}

// Describe declares the parameters.
func (nvfp4) Describe() sdk.Description {
	return sdk.Description{
		Name:    "nvfp4",
		Version: "1.5.0",
		Doc: "NVFP4: 4-bit floats (E2M1), an E4M3 scale for each 16 entries of a row and a binary32 " +
			"scale for the tensor; plain straight-through gradient.",
		Parameters: []sdk.Parameter{
			sdk.Choice("ties", string(microscaling.TiesEven), microscaling.TiesNames(),
				"level of a value halfway between two levels: the one with the even code, or with the "+
					"larger (away) or smaller (down) magnitude"),
			sdk.Choice("scale_rule", ruleSix, []string{ruleSix, ruleMSE}, "the level of a block's "+
				"maximum; static_6: 6; mse: 6 or 4, whichever makes the squared error of the block "+
				"smaller (Four Over Six)"),
			sdk.Choice("scale_form", formDecode, []string{formDecode, formEncode, formPower},
				"decode: a block's scale times the tensor's scale g; encode: divided by its reciprocal, "+
					"2688/max, as in compressed-tensors and vLLM; power_of_two: g is one, for an exact "+
					"export to llama.cpp, too"),
			sdk.Choice("tensor_scale", scaleCurrent, []string{scaleCurrent, scaleTracked},
				"the maximum from which the tensor's scale of an activation follows; current: its own; "+
					"tracked: that of all steps before, with which an export can store the scale"),
			sdk.Choice("rotation", microscaling.NoRotation,
				[]string{microscaling.NoRotation, "16", "32", "64", "128"},
				"block of the Hadamard rotation, which must divide the row"),
			sdk.Choice("rotated_products", rotateAll, []string{rotateAll, rotateWeightGradient},
				"the products whose operands are rotated: all, or only the gradient of a weight"),
			sdk.Choice("signs", microscaling.SignsFixed,
				[]string{microscaling.SignsFixed, microscaling.SignsRandom, signsPublished},
				"signs of the entries before the rotation; fixed: unchanged; random: in training, new in "+
					"each step and the same for both operands of a product; transformer_engine: "+
					"sixteen constant signs, for a rotation of 16"),
			sdk.Choice("weight_blocks", blocksOfRows, []string{blocksOfRows, squareBlocks}, "the entries "+
				"of a weight that share a scale; 16x16: squares, whose transpose has the same scales"),
			sdk.Choice("rounding", microscaling.RoundNearest,
				[]string{microscaling.RoundNearest, microscaling.RoundStochastic},
				"nearest; stochastic: up or down at random in training; ties then only affects the "+
					"errors that scale_rule compares, which are those of rounding to nearest"),
		},
		Claims: []sdk.Claim{
			{Name: sdk.ClaimScaleScope, Value: sdk.ScopeTensor}, // the second scale is per tensor
			// The tensor's scale is rounded, so Q(c·x) = c·Q(x) holds only if c is a power of two.
			{Name: sdk.ClaimTies},
		},
	}
}

// largest is the name of the state: the largest magnitude of an activation so far.
const largest = "largest"

// tracks reports whether the site has a state.
func tracks(site sdk.Site) bool {
	return site.Role == sdk.RoleActivation && site.Text("tensor_scale") == scaleTracked
}

// InitState writes the largest magnitude of the first batch.
func (nvfp4) InitState(b *program.Builder, x program.Value, site sdk.Site) (sdk.State, error) {
	if !tracks(site) {
		return nil, nil
	}
	if rotation := site.Text("rotation"); rotation != microscaling.NoRotation {
		return nil, sdk.Refuse("tensor_scale = %q is for files that programs read, which do not rotate "+
			"activations: it needs rotation = %q, but rotation is %q",
			scaleTracked, microscaling.NoRotation, rotation)
	}
	return sdk.State{largest: x.Abs().MaxAll()}, nil
}

// Maximum reports that the largest magnitude of micro-batches is that of the step.
func (nvfp4) Maximum(string, sdk.Site) bool { return true }

// Quantize writes the program for one site. The returned scale of each block is sB·g, or sB/G.
func (nvfp4) Quantize(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	rotation, signs, err := newRotation(b, site)
	if err != nil {
		return sdk.Quantized{}, err
	}
	z := rotation.Apply(signs.Apply(x))
	blocks := microscaling.NewBlocks(site.Shape, block)
	v := blocks.Split(z)
	s := newScales(v, site)
	var next sdk.State
	if tracks(site) {
		next = sdk.State{largest: s.largest.Max(site.State[largest])}
	}
	rounded := microscaling.RoundAt(v.Div(s.divisor), site)
	codes := s.finite.Select(microscaling.EncodeE2M1(rounded, signs.PositiveZeros(v)), b.ConstInt(0))
	return sdk.Quantized{
		Value:     signs.Apply(rotation.Apply(blocks.Join(rounded.Mul(s.scale)))),
		Surrogate: s.finite.Select(x, b.Const(0)),
		Codes:     blocks.Join(codes),
		Scale:     s.scale,
		Grid:      sdk.E2M1(block),
		Mask:      s.finite.Broadcast(site.Shape, nil),
		Next:      next,
		// sB depends only on ratios within the tensor, and g is proportional to the tensor, if it is
		// neither rounded to a power of two nor tracked.
		Homogeneous: site.Text("scale_form") != formPower && next == nil,
	}, nil
}

// Unpack writes P·(sB·g) or P·(sB/G), rotated back, for evaluation, which has no random signs.
func (nvfp4) Unpack(b *program.Builder, codes, scale program.Value,
	site sdk.Site) (program.Value, error) {
	rotation, signs, err := newRotation(b, site)
	if err != nil {
		return program.Value{}, err
	}
	return signs.Apply(rotation.Apply(microscaling.Decode(codes, scale, site, block))), nil
}

// newRotation returns a site's rotation and the signs that are applied before it.
func newRotation(
	b *program.Builder, site sdk.Site,
) (rotation microscaling.Rotation, signs microscaling.Signs, err error) {
	setting, kind := site.Text("rotation"), site.Text("signs")
	switch {
	case kind != microscaling.SignsFixed && setting == microscaling.NoRotation:
		return 1, signs, sdk.Refuse("signs = %q have no effect without a rotation: set rotation, "+
			"such as \"16\"", kind)
	case kind == signsPublished && setting != "16":
		return 1, signs, sdk.Refuse("signs = %q need rotation = \"16\", but rotation is %q",
			kind, setting)
	case site.Text("rotated_products") == rotateWeightGradient &&
		site.Product != sdk.ProductWeightGradient:
		return 1, signs, nil
	}
	rotation, err = microscaling.NewRotation(setting, site.RowLen())
	switch {
	case err != nil:
	case kind == signsPublished:
		signs = microscaling.PeriodicSigns(b, site, publishedSigns)
	case kind == microscaling.SignsRandom && site.Training:
		signs = microscaling.RandomSigns(b, site)
	}
	return rotation, signs, err
}

type scales struct {
	tensor program.Value // g or G, a scalar
	block  program.Value // sB, float[…,blocks,1]
	// sB·g or sB/G, in the shape of block; NaN everywhere if the tensor is not finite
	scale   program.Value
	divisor program.Value // scale, or +∞ where it is 0, so that ratios are 0
	largest program.Value // the largest magnitude of the tensor, a scalar
	finite  program.Value // bool, a scalar: true if the tensor contains neither NaN nor ±Inf
}

// newScales writes the scales of blocks v, float[…,blocks,16], for the settings of a site.
//
// g or G is rounded to binary32, the type in which file formats store it. It is 1, or the least
// power of two, for a tensor of zeros. A block whose maximum is at most 6·g·2⁻¹⁰ has sB = 0 and
// becomes zero.
func newScales(v program.Value, site sdk.Site) (s scales) {
	b := v.Builder()
	adaptive := site.Text("scale_rule") == ruleMSE
	perBlock := v.Abs().MaxRow()
	s.largest = perBlock.MaxAll()
	s.finite = s.largest.IsFinite()
	overall := s.largest
	if tracks(site) {
		overall = site.State[largest]
	}
	square := site.Role == sdk.RoleWeight && site.Text("weight_blocks") == squareBlocks
	if square {
		perBlock = overSquares(perBlock, program.Value.ReduceMax)
	}
	largestScale := microscaling.LargestE4M3 * 1.0
	if adaptive {
		largestScale = 256
	}
	reach := b.Const(microscaling.LargestE2M1 * largestScale)
	// units divides numbers by g, or multiplies them by G; back is the inverse function.
	var units, back func(program.Value) program.Value
	if site.Text("scale_form") == formEncode {
		g := microscaling.Single(reach.Div(overall))
		s.tensor = g.IsFinite().Select(g, b.Const(1)) // T is zero, or close to it
		units = func(v program.Value) program.Value { return v.Mul(s.tensor) }
		back = func(v program.Value) program.Value { return v.Div(s.tensor) }
	} else {
		if site.Text("scale_form") == formPower {
			exponent := reach.Div(overall).Logb().Neg()
			s.tensor = b.Const(1).Ldexp(exponent.Clip(-largestExponent, largestExponent))
		} else {
			g := microscaling.Single(overall.Div(reach))
			s.tensor = g.Eq(b.Const(0)).Select(b.Const(1), g)
		}
		units = func(v program.Value) program.Value { return v.Div(s.tensor) }
		back = func(v program.Value) program.Value { return v.Mul(s.tensor) }
	}
	six := units(perBlock.Div(b.Const(microscaling.LargestE2M1)))
	if adaptive {
		four := six.Scale(microscaling.LargestE2M1 / 4.0)
		in := units(v)
		errorOf := func(scale program.Value) program.Value {
			return blockError(in, microscaling.RoundE4M3(scale), site, square)
		}
		six = errorOf(four).Lt(errorOf(six)).Select(four, six)
	}
	s.block = microscaling.RoundE4M3(six)
	s.scale = s.finite.Select(back(s.block), b.Const(math.NaN()))
	s.divisor = zeroToInf(s.scale)
	return s
}

// blockError returns the squared error of rounding each block of v to nearest with the given scale.
// v is in units of the tensor's scale, so that no square underflows.
func blockError(v, scale program.Value, site sdk.Site, square bool) program.Value {
	ties := microscaling.Ties(site.Text("ties"))
	off := microscaling.RoundE2M1(v.Div(zeroToInf(scale)), ties).Mul(scale).Sub(v).Square().SumRow()
	if square {
		off = overSquares(off, program.Value.ReduceSum)
	}
	return off
}

// overSquares reduces per-block values, float[…,blocks,1] and nonnegative, over the 16 rows of a
// square block, and broadcasts the result to these rows. The last square may have fewer rows.
func overSquares(v program.Value, fold func(program.Value, ...int) program.Value) program.Value {
	shape := v.Shape()
	n := shape[len(shape)-2]
	rows := int(v.Type().Size()) / n
	squares := (rows + block - 1) / block
	flat := v.Reshape(rows, n)
	if missing := squares*block - rows; missing > 0 {
		flat = flat.Concatenate(0, v.Builder().Zeros(missing, n))
	}
	one := fold(flat.Reshape(squares, block, n), 1).Reshape(squares, 1, n)
	repeated := one.Broadcast([]int{squares, block, n}, nil).Reshape(squares*block, n)
	return repeated.At(0, 0, rows).Reshape(shape...)
}

// zeroToInf replaces a scale of 0 by +∞, so that ratios are 0.
func zeroToInf(scale program.Value) program.Value {
	b := scale.Builder()
	return scale.Eq(b.Const(0)).Select(b.Const(math.Inf(1)), scale)
}

func main() { sdk.ServeQuantizer(nvfp4{}) }
