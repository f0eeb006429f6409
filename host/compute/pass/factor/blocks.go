package factor

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
)

// The block sizes: how many entries of a row share a scale. With blocks of BlockE8M0 entries, scales are in E8M0,
// powers of two, as in MXFP4; with blocks of BlockE4M3 entries they are in E4M3, as in NVFP4.
const BlockE8M0, BlockE4M3 = 32, 16

// Names of the outputs that [Blocks] adds. The first two are whole numbers from −128 to 127 (signed bytes), as floats.
const (
	// OutputPacked holds the codes of E2M1, [n, m/2], two in a byte: that of the even entry is in the lower four bits.
	OutputPacked = "factor.packed"
	// OutputScales holds the scales of blocks, [n, m/32] in E8M0 or [n, m/16] in E4M3; they are NaN where the matrix
	// is.
	OutputScales = "factor.scales"
	// OutputOverall holds the factors by which the scales of each row are multiplied, [n, 1].
	OutputOverall = "factor.overall"
)

// Bytes that are NaN, and what is added to exponents (OCP Microscaling specification 1.0; OCP 8-bit floating point).
const nanE8M0, nanE4M3, biasE8M0 = 255, 127, 127

// Blocks returns p with three more outputs, from which [Dequantize] computes the output with the given name, a matrix.
// They are numbers of E2M1, ±{0, ½, 1, 1½, 2, 3, 4, 6}, and scales of the blocks of a row. The result is exact except
// for the signs of zeros, and for rounding if a scale is the product of two. ok is false if it cannot be seen in the
// program that the matrix consists of these: Blocks follows numbers, not conditions, and so does not see the effect of
// a rule for ties other than that of round. If one entry of a block is NaN, its codes say that all are.
func Blocks(p *program.Program, output string) (factored *program.Program, ok bool) {
	id, ok := p.Output(output)
	if !ok || len(p.TypeOf(id).Shape) != 2 {
		return nil, false
	}
	rows := p.TypeOf(id).Shape[0]
	for n := node(p, id, program.OpReshape); n != nil; n = node(p, id, program.OpReshape) {
		id = n.Args[0]
	}
	n := node(p, id, program.OpMul)
	if n == nil || n.Type.DType != program.Float || len(n.Type.Shape) != 3 || n.Type.Shape[0] != rows {
		return nil, false
	}
	known := numbers(p)
	one := program.FloatType(n.Type.Shape[0], n.Type.Shape[1], 1)
	for i, entries := range n.Args {
		scale := n.Args[1-i]
		if !p.TypeOf(entries).Equal(n.Type) || !p.TypeOf(scale).Equal(one) || !known[entries].inE2M1() {
			continue
		}
		if scales := scalesOf(p, known, scale, n.Type.Shape[2]); scales != nil {
			return extend(p, func(values []program.Value) []program.Value {
				bytes, overall := scales(values, nanBlocks(values[entries]))
				return []program.Value{packCodes(values[entries]), bytes, overall}
			}, OutputPacked, OutputScales, OutputOverall), true
		}
	}
	return nil, false
}

// inE2M1 reports whether all numbers of the set are numbers of E2M1.
func (s set) inE2M1() bool {
	list, ok := s.members()
	return ok && !slices.ContainsFunc(list, func(x float64) bool {
		return !slices.Contains([]float64{0, 0.5, 1, 1.5, 2, 3, 4, 6}, math.Abs(x))
	})
}

// scales writes the scales of blocks, as bytes [n, blocks], and a factor for each row, [n, 1]. Blocks that are broken get the byte for
// NaN.
type scales func(values []program.Value, broken program.Value) (bytes, overall program.Value)

// scalesOf finds in which format the scales of blocks of this size are; nil if in none.
func scalesOf(p *program.Program, known []set, scale program.ID, size int) scales {
	switch s := known[scale]; {
	case size == BlockE8M0 && s.unit > 0 && s.lo >= s.unit*math.Exp2(-biasE8M0) && s.hi <= s.unit*math.Exp2(biasE8M0):
		return func(values []program.Value, broken program.Value) (bytes, overall program.Value) {
			b, x := values[scale].Builder(), values[scale].Add(broken)
			exponent := x.Div(b.Const(s.unit)).Logb().Shift(biasE8M0).Clip(0, nanE8M0-1)
			bytes = toSigned(x.IsFinite().Select(exponent, b.Const(nanE8M0)), 128)
			return blockRows(bytes), b.Full(s.unit, x.Shape()[0], 1)
		}
	case size == BlockE4M3:
		return scalesE4M3(p, known, scale)
	}
	return nil
}

// scalesE4M3 finds scales that are a number of E4M3 for each block, multiplied or divided by one number for the tensor; there may be NaN
// in place of some. It returns nil if they are none.
func scalesE4M3(p *program.Program, known []set, scale program.ID) scales {
	inner := scale
	if s := node(p, inner, program.OpSelect); s != nil && known[s.Args[2]].isNaN() {
		inner = s.Args[1]
	}
	n := p.Node(inner)
	if n == nil || n.Op != program.OpMul && n.Op != program.OpDiv {
		return nil
	}
	block, tensor := n.Args[0], n.Args[1]
	if n.Op == program.OpMul && !inE4M3(p, known, block) {
		block, tensor = tensor, block
	}
	if !inE4M3(p, known, block) || p.TypeOf(tensor).Size() != 1 || !p.TypeOf(block).Equal(p.TypeOf(scale)) {
		return nil
	}
	return func(values []program.Value, broken program.Value) (bytes, overall program.Value) {
		b, x := values[scale].Builder(), values[block]
		unit := x.Logb().Clip(-6, 8)
		code := unit.Shift(6).Scale(8).Add(x.Ldexp(b.Const(3).Sub(unit)))
		whole := values[scale].Add(broken)
		overall = values[tensor]
		if len(overall.Shape()) > 0 {
			overall = overall.Reshape()
		}
		number := whole.IsFinite().And(x.Ge(b.Const(0)))
		if n.Op == program.OpDiv {
			overall = b.Const(1).Div(overall)
			number = number.And(overall.IsFinite().Or(x.Eq(b.Const(0))))
			overall = overall.Clip(-math.MaxFloat32, math.MaxFloat32) // so that a scale of 0 over the smallest numbers is 0 and not NaN
		}
		return blockRows(number.Select(code, b.Const(nanE4M3))), overall.Broadcast([]int{x.Shape()[0], 1}, nil)
	}
}

// blockRows drops the last axis, which has one element.
func blockRows(x program.Value) program.Value { return x.Reshape(x.Shape()[0], x.Shape()[1]) }

// nanBlocks is NaN for each block that has NaN among its entries, and 0 for the others: zero times their sum.
func nanBlocks(entries program.Value) program.Value {
	return entries.ReduceSum(2).Reshape(entries.Shape()[0], entries.Shape()[1], 1).Scale(0)
}

// packCodes are the codes of entries [n, blocks, size], two in a byte.
func packCodes(entries program.Value) program.Value {
	b, shape := entries.Builder(), entries.Shape()
	pairs := program.FloatType(shape[0], shape[1]*shape[2]/2, 2)
	codes := microscaling.EncodeE2M1(entries, entries).Convert(program.Float).Reshape(pairs.Shape...)
	upper := toSigned(codes, 8).Mul(b.Const(16))
	return b.Iota(pairs, 2).Gt(b.Const(0)).Select(upper, codes).ReduceSum(2)
}

// toSigned turns unsigned integers below 2·half into signed ones with the same bits, and toUnsigned turns them back.
func toSigned(x program.Value, half float64) program.Value {
	return x.Ge(x.Builder().Const(half)).Select(x.Shift(-2*half), x)
}

func toUnsigned(x program.Value, half float64) program.Value {
	return x.Lt(x.Builder().Const(0)).Select(x.Shift(2*half), x)
}

// Dequantize returns the program that computes a matrix [rows, length], as the output with the given name. Its inputs are
// the codes and the scales that [Blocks] adds, for blocks of the given size. The rows of the matrix still have to be
// multiplied by [OutputOverall].
func Dequantize(rows, length, size int, output string) *program.Program {
	b := program.NewBuilder("blocks.unpacked")
	packed := b.Input(OutputPacked, program.FloatType(rows, length/2))
	bytes := b.Input(OutputScales, program.FloatType(rows, length/size))

	upper := packed.Scale(1.0 / 16).Floor()
	lower := packed.Sub(upper.Scale(16))
	codes := lower.Reshape(rows, length/2, 1).Concatenate(2, toUnsigned(upper, 8).Reshape(rows, length/2, 1))
	entries := microscaling.DecodeE2M1(codes).Reshape(rows, length/size, size)

	bytes = bytes.Reshape(rows, length/size, 1)
	var scale program.Value
	if nan := b.Const(math.NaN()); size == BlockE8M0 {
		bytes = toUnsigned(bytes, 128)
		scale = bytes.Eq(b.Const(nanE8M0)).Select(nan, b.Const(1).Ldexp(bytes.Shift(-biasE8M0)))
	} else {
		unit := bytes.Scale(1.0/8).Floor().Shift(-1).Clip(0, 14)
		scale = bytes.Eq(b.Const(nanE4M3)).Select(nan, bytes.Sub(unit.Scale(8)).Ldexp(unit.Shift(-9)))
	}
	b.Output(output, entries.Mul(scale).Reshape(rows, length))
	p, err := b.Build()
	if err != nil {
		panic(err) // the sizes do not go together
	}
	return p
}

// E4M3 has three bits of mantissa. The distance between neighbours, the unit, is 2⁻⁹ for the smallest numbers and 2⁵ for the
// largest.
const mantissaE4M3, leastUnitE4M3, largestUnitE4M3 = 3, -9, 5

// inE4M3 reports whether a value is computed as [microscaling.RoundE4M3] computes it, from a number v that is not negative:
// clamp(round(v·2⁻ᵘ)·2ᵘ), where u is ⌊log₂v⌋ − 3, clamped. Such a value is a number of E4M3: it is at most 16·2ᵘ, which the format
// has, or is clamped to the upper limit, which the format has, too. The clamps may turn NaN into a number, but into none that is
// positive.
func inE4M3(p *program.Program, known []set, id program.ID) bool {
	clamp := node(p, id, program.OpClamp)
	if clamp == nil || known[clamp.Args[0]].lo < 0 || known[clamp.Args[1]].hi > 0 {
		return false
	}
	up := node(p, clamp.Args[0], program.OpLdexp)
	if up == nil {
		return false
	}
	unit, round := node(p, up.Args[1], program.OpClamp), node(p, up.Args[0], program.OpRound)
	if unit == nil || round == nil || !limitsE4M3(known[unit.Args[1]], known[unit.Args[2]], known[clamp.Args[2]]) {
		return false
	}
	down, log := node(p, round.Args[0], program.OpLdexp), node(p, unit.Args[0], program.OpAdd)
	if down == nil || log == nil || !known[log.Args[1]].is(-mantissaE4M3) {
		return false
	}
	inverse, exponent := node(p, down.Args[1], program.OpNeg), node(p, log.Args[0], program.OpLogb)
	return inverse != nil && inverse.Args[0] == up.Args[1] && exponent != nil && exponent.Args[0] == down.Args[0]
}

// limitsE4M3 reports whether the format has numbers with these limits: the least and the largest u, which are integers, and the upper limit
// of the value, which is 8 to 16 times the largest unit.
func limitsE4M3(least, largest, limit set) bool {
	if len(least.listed) != 1 || len(largest.listed) != 1 || len(limit.listed) != 1 || least.step < 1 || largest.step < 1 {
		return false
	}
	unit := math.Exp2(largest.hi)
	multiple := limit.hi / unit
	return least.lo >= leastUnitE4M3 && largest.hi <= largestUnitE4M3 &&
		limit.hi <= microscaling.LargestE4M3 && multiple <= 16 && multiple >= 8 && multiple == math.Trunc(multiple)
}

// node is the node that defines a value, if it has this operation, else nil.
func node(p *program.Program, id program.ID, op program.Op) *program.Node {
	if n := p.Node(id); n != nil && n.Op == op {
		return n
	}
	return nil
}
