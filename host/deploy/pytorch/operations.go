package pytorch

import (
	"fmt"
	"strings"

	"github.com/cage-qat/cage/sdk/program"
)

// An operation writes a node as a Python expression.
type operation func(n node) string

// operations has an entry for each operation of package program. Unsigned integers are int64 with
// values below 2³², because PyTorch computes little with uint32.
var operations = map[program.Op]operation{
	program.OpConstant: func(n node) string { return n.constant() },
	program.OpIota: func(n node) string {
		return n.call("iota", n.dims(), fmt.Sprint(n.Attr.Axes[0]), n.dtype(), "device")
	},
	program.OpRandomBits: func(n node) string { return n.call("random_bits", n.tensor(0), n.dims()) },

	program.OpNeg:      method("neg"),
	program.OpAbs:      method("abs"),
	program.OpSign:     helper("sign"),
	program.OpSqrt:     method("sqrt"),
	program.OpExp:      method("exp"),
	program.OpExpm1:    method("expm1"),
	program.OpLog:      method("log"),
	program.OpLog1p:    method("log1p"),
	program.OpTanh:     method("tanh"),
	program.OpSin:      method("sin"),
	program.OpCos:      method("cos"),
	program.OpFloor:    method("floor"),
	program.OpRound:    method("round"),
	program.OpLogb:     helper("logb"),
	program.OpIsFinite: method("isfinite"),
	program.OpNot:      func(n node) string { return n.wrap("~" + n.tensor(0)) },

	program.OpAdd: infix("+"),
	program.OpSub: infix("-"),
	program.OpMul: infix("*"),
	// PyTorch may multiply by the reciprocal of a number, which rounds twice.
	program.OpDiv:   func(n node) string { return n.tensor(0) + " / " + n.tensor(1) },
	program.OpPow:   function("torch.pow"),
	program.OpMax:   function("torch.maximum"),
	program.OpMin:   function("torch.minimum"),
	program.OpLdexp: helper("ldexp"),
	program.OpAnd:   infix("&"),
	program.OpOr:    infix("|"),
	program.OpXor:   infix("^"),
	program.OpShl:   infix("<<"),
	program.OpShr:   infix(">>"),
	program.OpClamp: func(n node) string {
		if n.literal(1) && n.literal(2) {
			return fmt.Sprintf("%s.clamp(%s, %s)", n.tensor(0), n.arg(1), n.arg(2))
		}
		return fmt.Sprintf("%s.clamp(%s, %s)", n.tensor(0), n.tensor(1), n.tensor(2))
	},

	program.OpEq: infix("=="),
	program.OpNe: infix("!="),
	program.OpLt: infix("<"),
	program.OpLe: infix("<="),
	program.OpGt: infix(">"),
	program.OpGe: infix(">="),

	program.OpSelect: func(n node) string {
		x, y := n.arg(1), n.arg(2)
		if n.literal(1) && n.literal(2) {
			x = n.tensor(1)
		}
		return fmt.Sprintf("torch.where(%s, %s, %s)", n.tensor(0), x, y)
	},
	program.OpConvert: func(n node) string { return n.convert() },
	program.OpBitcast: func(n node) string { return n.bitcast() },

	program.OpReshape: func(n node) string { return n.tensor(0) + ".reshape(" + n.dims() + ")" },
	program.OpTranspose: func(n node) string {
		return n.tensor(0) + ".permute(" + tuple(n.Attr.Axes) + ")"
	},
	program.OpBroadcast: func(n node) string { return n.broadcast() },
	program.OpSlice:     func(n node) string { return n.slice() },
	program.OpConcatenate: func(n node) string {
		return fmt.Sprintf("torch.cat((%s,), %d)", strings.Join(n.tensors(), ", "), n.Attr.Axes[0])
	},

	program.OpReduceSum: func(n node) string {
		if n.Type.DType == program.Int { // which PyTorch sums as int64
			return n.tensor(0) + ".sum(" + tuple(n.Attr.Axes) + ", dtype=torch.int32)"
		}
		return n.wrap(n.tensor(0) + ".sum(" + tuple(n.Attr.Axes) + ")")
	},
	program.OpReduceMax: func(n node) string {
		return n.tensor(0) + ".amax(" + tuple(n.Attr.Axes) + ")"
	},
	program.OpReduceMin: func(n node) string {
		return n.tensor(0) + ".amin(" + tuple(n.Attr.Axes) + ")"
	},

	program.OpDot: func(n node) string { return n.dot() },
	program.OpHadamard: func(n node) string {
		return n.call("hadamard", n.tensor(0), fmt.Sprint(n.Attr.Block))
	},
	program.OpStopGradient: func(n node) string { return n.tensor(0) },

	program.OpQR:          helper("qr"),
	program.OpEighValues:  helper("eigh_values"),
	program.OpEighVectors: helper("eigh_vectors"),
	program.OpSortColumns: helper("sort_columns"),

	program.OpNearest: helper("nearest"),
	program.OpLookup:  helper("lookup"),
	program.OpScatterAdd: func(n node) string {
		return n.call("scatter_add", n.tensor(0), n.tensor(1), n.dims())
	},
	program.OpTopK:           helper("top_k"),
	program.OpOrderStatistic: helper("order_statistic"),
}

func method(name string) operation {
	return func(n node) string { return n.tensor(0) + "." + name + "()" }
}

// infix writes a Python operator, one of whose operands may be a number.
func infix(operator string) operation {
	return func(n node) string {
		x, y := n.arg(0), n.arg(1)
		if n.literal(0) && n.literal(1) {
			x = n.tensor(0)
		}
		if strings.HasPrefix(y, "-") {
			y = "(" + y + ")"
		}
		return n.wrap(x + " " + operator + " " + y)
	}
}

// function writes a call whose operands are all tensors.
func function(name string) operation {
	return func(n node) string { return name + "(" + strings.Join(n.tensors(), ", ") + ")" }
}

// helper writes a call of a function of runtime/operations.py.
func helper(name string) operation {
	return func(n node) string { return n.call(name, n.tensors()...) }
}
