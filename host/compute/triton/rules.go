package triton

import (
	"math"
	"slices"
	"strings"

	"github.com/cage-qat/cage/sdk/program"
)

// A rule lowers one node, given its operands. The operands of an elementwise node have the same
// axes; see broadcastOperands.
type rule func(w *writer, n *program.Node, args []value) value

// rules maps the supported operations to their rules. Functions are those of NVIDIA's libdevice in
// their exact forms: square roots are correctly rounded, as programs require. Division is described
// at [quotient].
var rules map[program.Op]rule

func init() { // a literal would be an initialization cycle: some rules read the table indirectly
	rules = map[program.Op]rule{
		program.OpConstant: (*writer).constantNode,
		program.OpIota:     (*writer).iota,

		program.OpNeg:   (*writer).neg,
		program.OpAbs:   byType("math.absf", "math.absi", ""),
		program.OpSign:  (*writer).sign,
		program.OpSqrt:  operation("tt.precise_sqrt"),
		program.OpExp:   call("__nv_expf"),
		program.OpExpm1: call("__nv_expm1f"),
		program.OpLog:   call("__nv_logf"),
		program.OpLog1p: call("__nv_log1pf"),
		program.OpTanh:  call("__nv_tanhf"),
		program.OpSin:   call("__nv_sinf"),
		program.OpCos:   call("__nv_cosf"),
		program.OpFloor: call("__nv_floorf"),
		program.OpRound: (*writer).round,
		program.OpLogb:  (*writer).logb,
		program.OpNot:   (*writer).not,
		program.OpIsFinite: func(w *writer, _ *program.Node, args []value) value {
			size := w.apply("math.absf", args[0])
			return w.compare("olt", size, w.number(args[0], math.Inf(1)))
		},

		program.OpAdd:   (*writer).add,
		program.OpSub:   byType("arith.subf", "arith.subi", "arith.subi"),
		program.OpMul:   (*writer).mul,
		program.OpDiv:   (*writer).div,
		program.OpPow:   call("__nv_powf"),
		program.OpLdexp: (*writer).ldexp,
		program.OpMax:   byType("arith.maximumf", "arith.maxsi", "arith.maxui"),
		program.OpMin:   byType("arith.minimumf", "arith.minsi", "arith.minui"),
		program.OpAnd:   (*writer).and,
		program.OpOr:    operation("arith.ori"),
		program.OpXor:   operation("arith.xori"),
		program.OpShl:   operation("arith.shli"),
		program.OpShr:   byType("", "arith.shrsi", "arith.shrui"),
		program.OpClamp: (*writer).clamp,

		program.OpEq: comparison("oeq", "eq", "eq"),
		program.OpNe: comparison("une", "ne", "ne"),
		program.OpLt: comparison("olt", "slt", "ult"),
		program.OpLe: comparison("ole", "sle", "ule"),
		program.OpGt: comparison("ogt", "sgt", "ugt"),
		program.OpGe: comparison("oge", "sge", "uge"),

		program.OpSelect: func(w *writer, _ *program.Node, args []value) value {
			return w.selectValue(args[0], args[1], args[2])
		},
		program.OpConvert: (*writer).convert,
		program.OpBitcast: func(w *writer, n *program.Node, args []value) value {
			return w.bits(args[0], elem(n.Type.DType))
		},
		program.OpReshape:   (*writer).reshape,
		program.OpBroadcast: (*writer).broadcast,
		program.OpStopGradient: func(_ *writer, _ *program.Node, args []value) value {
			return args[0]
		},
		program.OpReduceSum: (*writer).reduction,
		program.OpReduceMax: (*writer).reduction,
		program.OpReduceMin: (*writer).reduction,
		program.OpHadamard:  (*writer).hadamard,
	}
}

func operation(op string) rule {
	return func(w *writer, _ *program.Node, args []value) value { return w.apply(op, args...) }
}

func call(symbol string) rule {
	return func(w *writer, _ *program.Node, args []value) value { return w.library(symbol, args...) }
}

// byType chooses the operation by the type of the operands: float, int or uint.
func byType(ops ...string) rule {
	return func(w *writer, n *program.Node, args []value) value {
		return w.apply(choose(w.p.TypeOf(n.Args[0]).DType, ops), args...)
	}
}

func choose(d program.DType, options []string) string {
	switch d {
	case program.Float:
		return options[0]
	case program.Int:
		return options[1]
	}
	return options[2]
}

func comparison(predicates ...string) rule {
	return func(w *writer, n *program.Node, args []value) value {
		return w.compare(choose(w.p.TypeOf(n.Args[0]).DType, predicates), args[0], args[1])
	}
}

// number returns the constant n with the element type and axes of x.
func (w *writer) number(x value, n float64) value {
	return w.broadcastTo(w.constant(x.elem, n), x.dims)
}

func (w *writer) constantNode(n *program.Node, _ []value) value {
	switch {
	case len(n.Attr.Floats) == 1:
		return w.constant("f32", n.Attr.Floats[0])
	case len(n.Attr.Ints) == 1:
		return w.constant(elem(n.Type.DType), float64(n.Attr.Ints[0]))
	}
	panic(w.refuse("a constant has more than one number"))
}

// Quotients are products with the reciprocal, corrected by the remainder, which a fused
// multiply-add computes exactly. So they are correctly rounded, except for a few that are within
// about 20 more bits of halfway between two floats. XLA compiles Triton's own division to the
// device's approximation, which is off by up to two ulp and takes more instructions. If an operand
// is infinite or zero, the remainder is NaN, and the correction is skipped. Divisors below 2⁻¹²⁶
// count as zero, and those above 2¹²⁶ as infinite. Quotients with a per-row divisor are less
// precise if the quotient or the dividend is below 2⁻¹⁰⁰.
const (
	// quotient computes x/y.
	quotient = "{ .reg .f32 r, q, e; .reg .pred p; rcp.approx.ftz.f32 r, $2; " +
		"mul.rn.f32 q, $1, r; neg.f32 e, q; fma.rn.f32 e, e, $2, $1; " +
		"setp.num.f32 p, e, e; fma.rn.f32 e, e, r, q; selp.f32 $0, e, q, p; }"
	// reciprocal computes 1/x.
	reciprocal = "{ .reg .f32 r, e; rcp.approx.ftz.f32 r, $1; " +
		"neg.f32 e, r; fma.rn.f32 e, e, $1, 0f3F800000; " +
		"min.f32 e, e, 0f7F7FFFFF; fma.rn.f32 $0, e, r, r; }"
	// rowQuotient computes x/y from both parts of the reciprocal of y.
	rowQuotient = "{ .reg .f32 t; mul.rn.f32 t, $1, $3; fma.rn.f32 $0, $1, $2, t; }"
)

// div returns a quotient. Divisors that are constant along a row or a group are also kept in
// w.divisor, so that their reciprocals are computed once.
func (w *writer) div(n *program.Node, args []value) value {
	x, y := args[0], args[1]
	switch {
	case w.divisor.power && isPower(w.divisor.low):
		return w.byPower(x, w.divisor)
	case y.power && isPower(y.low):
		return w.byPower(x, y)
	case x.dims == nil:
		return w.apply("tt.precise_divf", x, y) // Triton allows inline assembly for tiles only
	case w.divisor.name == "":
		if c, ok := x.is(); ok && c == 1 {
			return w.assembly(reciprocal, y)
		}
		return w.assembly(quotient, x, y)
	}
	high, low := w.reciprocalParts(w.divisor)
	return w.assembly(rowQuotient, x, w.spread(high, x.dims), w.spread(low, x.dims))
}

// spread broadcasts a per-row or per-group number to the given axes.
func (w *writer) spread(v value, dims []int) value {
	if v.dims != nil && len(v.dims) < len(dims) {
		v = w.reshapeTo(v, slices.Repeat([]int{1}, len(dims)))
	}
	return w.broadcastTo(v, dims)
}

// reciprocalParts returns two numbers whose sum is 1/y with a precision of 44 bits. Both have the
// sign of y and are nonzero, so that an infinite x has an infinite quotient. If y is 0, NaN or
// infinite, both are the reciprocal itself, which is off by up to two ulp.
func (w *writer) reciprocalParts(y value) (high, low value) {
	r := w.apply("tt.precise_divf", w.number(y, 1), y)
	size := w.apply("math.absf", r)
	nonzero := w.compare("ogt", size, w.number(r, 0))
	finite := w.compare("olt", size, w.number(r, math.Inf(1)))
	regular := w.apply("arith.andi", nonzero, finite)
	bits := w.bits(r, "i32")
	high = w.bits(w.apply("arith.subi", bits, w.number(bits, 3)), "f32") // certainly below 1/y
	over := w.apply("math.fma", high, y, w.number(y, -1))
	low = w.apply("arith.mulf", w.apply("arith.subf", w.number(r, 0), over), r)
	return w.selectValue(regular, high, r), w.selectValue(regular, low, r)
}

// assembly computes each element with inline PTX, in which $0 is the result and $1, $2, … are the
// operands.
func (w *writer) assembly(text string, args ...value) value {
	constraints := "=f" + strings.Repeat(",f", len(args))
	return w.inline("f32", args[0].dims, text, constraints, 1, true, args...)
}

// pairs computes two adjacent elements at once with inline PTX. Each float32 element is an operand
// of its own; two bfloat16 elements share an operand.
func (w *writer) pairs(elem, text string, args ...value) value {
	constraints := "=r"
	for _, a := range args {
		constraints += map[string]string{"f32": ",f,f", "bf16": ",r"}[a.elem]
	}
	return w.inline(elem, args[0].dims, text, constraints, 2, true, args...)
}

// inline adds inline PTX that computes the given number of adjacent elements at once.
func (w *writer) inline(
	elem string, dims []int, text, constraints string, elements int, pure bool, args ...value,
) value {
	return w.set(elem, dims, `tt.elementwise_inline_asm "%s" {constraints = "%s", `+
		`packed_element = %d : i32, pure = %t} %s : %s -> %s`,
		text, constraints, elements, pure, names(args), types(args), typeText(elem, dims))
}

func (w *writer) neg(n *program.Node, args []value) value {
	switch {
	case n.Type.DType == program.Float && args[0].dims != nil:
		x := args[0]
		v := w.assembly("{ neg.f32 $0, $1; }", x) // fuses with its reader; Triton's is a subtraction
		v.inBFloat16, v.bounded, v.low, v.high = x.inBFloat16, x.bounded, -x.high, -x.low
		return v
	case n.Type.DType == program.Float:
		return w.apply("arith.negf", args[0])
	}
	return w.apply("arith.subi", w.number(args[0], 0), args[0])
}

// sign returns −1 or 1 by the sign of x, 0 for zeros, and NaN for NaN.
func (w *writer) sign(n *program.Node, args []value) value {
	x := args[0]
	zero, one, minus := w.number(x, 0), w.number(x, 1), w.number(x, -1)
	greater, less, rest := "sgt", "slt", zero
	if n.Type.DType == program.Float {
		greater, less = "ogt", "olt"
		rest = w.selectValue(w.compare("uno", x, x), x, zero)
	}
	positive := w.compare(greater, x, zero)
	return w.selectValue(positive, one, w.selectValue(w.compare(less, x, zero), minus, rest))
}

// selectValue returns x where the condition holds, and y elsewhere.
func (w *writer) selectValue(condition, x, y value) value {
	v := w.set(x.elem, x.dims, "arith.select %s : %s, %s",
		names([]value{condition, x, y}), condition.typ(), x.typ())
	v.inBFloat16 = x.inBFloat16 && y.inBFloat16
	return v
}

func (w *writer) not(_ *program.Node, args []value) value {
	ones := -1.0
	if args[0].elem == "i1" {
		ones = 1
	}
	return w.apply("arith.xori", args[0], w.number(args[0], ones))
}

// convert is a no-op between int and uint, which are one element type in MLIR.
func (w *writer) convert(n *program.Node, args []value) value {
	x, from, to := args[0], w.p.TypeOf(n.Args[0]).DType, n.Type.DType
	switch {
	case elem(from) == elem(to):
		return x
	case to == program.Bool && from == program.Float:
		return w.compare("une", x, w.number(x, 0))
	case to == program.Bool:
		return w.compare("ne", x, w.number(x, 0))
	case to == program.Float && from == program.Int:
		return w.cast("arith.sitofp", x, "f32")
	case to == program.Float:
		return w.cast("arith.uitofp", x, "f32")
	case from == program.Bool:
		return w.cast("arith.extui", x, "i32")
	case to == program.Int:
		return w.cast("arith.fptosi", x, "i32")
	}
	return w.cast("arith.fptoui", x, "i32")
}
