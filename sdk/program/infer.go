package program

import (
	"fmt"
	"slices"
	"strings"
)

// infer returns the type of a node's result. For most operations it follows from the
// operands' types; for the others (constant, reshape, …) want says what it should be.
func infer(op Op, args []Type, attr Attr, want Type) (Type, error) {
	info, ok := op.Info()
	if !ok {
		return Type{}, fmt.Errorf("operation %d does not exist", uint16(op))
	}
	if info.Arity >= 0 && len(args) != info.Arity {
		return Type{}, fmt.Errorf("takes %d operands, got %d", info.Arity, len(args))
	}
	if info.Arity < 0 && len(args) == 0 {
		return Type{}, fmt.Errorf("takes at least one operand")
	}
	if err := attr.check(op); err != nil {
		return Type{}, err
	}
	switch info.Class {
	case ClassSource:
		return inferSource(op, args, attr, want)
	case ClassUnary:
		return inferUnary(op, args[0])
	case ClassBinary, ClassCompare:
		return inferBinary(op, info.Class, args[0], args[1])
	case ClassElementwise:
		return inferElementwise(op, args, want)
	case ClassShape:
		return inferShape(op, args, attr, want)
	case ClassReduce:
		return inferReduce(args[0], attr.Axes)
	case ClassLinear:
		return inferLinear(op, args, attr)
	case ClassGradient:
		return args[0], nil
	default:
		return inferLinalg(op, args)
	}
}

// need fails unless the element type is one of those allowed.
func need(t Type, allowed ...DType) error {
	if slices.Contains(allowed, t.DType) {
		return nil
	}
	names := make([]string, len(allowed))
	for i, a := range allowed {
		names[i] = a.String()
	}
	return fmt.Errorf("takes %s, got %s", strings.Join(names, " or "), t)
}

func inferSource(op Op, args []Type, attr Attr, want Type) (Type, error) {
	if err := want.check(); err != nil {
		return Type{}, err
	}
	switch op {
	case OpConstant:
		return want, checkConstant(attr, want)
	case OpIota:
		if err := need(want, Float, Int, Uint); err != nil {
			return Type{}, err
		}
		if len(attr.Axes) != 1 {
			return Type{}, fmt.Errorf("needs exactly one axis, got %d", len(attr.Axes))
		}
		return want, checkAxes(attr.Axes, want.Rank())
	default: // OpRandomBits
		if key := (Type{Uint, []int{2}}); !args[0].Equal(key) {
			return Type{}, fmt.Errorf("takes a key of type %s, got %s", key, args[0])
		}
		return want, need(want, Uint)
	}
}

func checkConstant(attr Attr, want Type) error {
	n, other := len(attr.Floats), len(attr.Ints)
	if want.DType != Float {
		n, other = other, n
	}
	if other != 0 {
		return fmt.Errorf("elements do not have the type %s", want.DType)
	}
	if n != 1 && int64(n) != want.Size() {
		return fmt.Errorf("%d elements for %s: give 1 or %d", n, want, want.Size())
	}
	for i, v := range attr.Ints {
		lo, hi := int64(-1<<31), int64(1<<31-1)
		switch want.DType {
		case Uint:
			lo, hi = 0, 1<<32-1
		case Bool:
			lo, hi = 0, 1
		}
		if v < lo || v > hi {
			return fmt.Errorf("element %d is %d, outside %s", i, v, want.DType)
		}
	}
	return nil
}

func inferUnary(op Op, x Type) (Type, error) {
	switch op {
	case OpNeg, OpAbs, OpSign:
		return x, need(x, Float, Int)
	case OpNot:
		return x, need(x, Bool, Int, Uint)
	case OpIsFinite:
		return Type{Bool, x.Shape}, need(x, Float)
	default:
		return x, need(x, Float)
	}
}

func inferBinary(op Op, class Class, x, y Type) (Type, error) {
	if x.DType != y.DType {
		return Type{}, fmt.Errorf("operands have different element types: %s and %s", x, y)
	}
	var err error
	switch op {
	case OpDiv, OpPow, OpLdexp:
		err = need(x, Float)
	case OpAnd, OpOr, OpXor:
		err = need(x, Bool, Int, Uint)
	case OpShl, OpShr:
		err = need(x, Int, Uint)
	case OpEq, OpNe:
		err = need(x, Float, Int, Uint, Bool)
	default:
		err = need(x, Float, Int, Uint)
	}
	if err != nil {
		return Type{}, err
	}
	shape, err := elementwiseShape(x.Shape, y.Shape)
	if err != nil {
		return Type{}, err
	}
	if class == ClassCompare {
		return Type{Bool, shape}, nil
	}
	return Type{x.DType, shape}, nil
}

// elementwiseShape is the one rule of implicit broadcasting: a scalar goes with
// anything; otherwise ranks are equal and axes are equal or 1.
func elementwiseShape(a, b []int) ([]int, error) {
	if len(a) == 0 {
		return b, nil
	}
	if len(b) == 0 {
		return a, nil
	}
	mismatch := func() error {
		return fmt.Errorf("shapes %v and %v do not go together: ranks must be equal and axes equal or 1 (reshape or broadcast one operand)", a, b)
	}
	if len(a) != len(b) {
		return nil, mismatch()
	}
	shape := make([]int, len(a))
	for i := range a {
		switch {
		case a[i] == b[i] || b[i] == 1:
			shape[i] = a[i]
		case a[i] == 1:
			shape[i] = b[i]
		default:
			return nil, mismatch()
		}
	}
	return shape, nil
}

func inferElementwise(op Op, args []Type, want Type) (Type, error) {
	switch op {
	case OpClamp:
		return args[0], checkClamp(args)
	case OpSelect:
		if err := need(args[0], Bool); err != nil {
			return Type{}, fmt.Errorf("condition %w", err)
		}
		if args[1].DType != args[2].DType {
			return Type{}, fmt.Errorf("operands have different element types: %s and %s", args[1], args[2])
		}
		shape, err := elementwiseShape(args[1].Shape, args[2].Shape)
		if err == nil {
			shape, err = elementwiseShape(shape, args[0].Shape)
		}
		return Type{args[1].DType, shape}, err
	case OpBitcast:
		if err := need(args[0], Float, Int, Uint); err != nil {
			return Type{}, err
		}
		return Type{want.DType, args[0].Shape}, need(want, Float, Int, Uint)
	default: // OpConvert
		if !want.DType.Valid() {
			return Type{}, fmt.Errorf("cannot convert to %s", want.DType)
		}
		return Type{want.DType, args[0].Shape}, nil
	}
}

func checkClamp(args []Type) error {
	for i, name := range []string{"", "lower bound ", "upper bound "} {
		if err := need(args[i], Float); err != nil {
			return fmt.Errorf("%s%w", name, err)
		}
		if i > 0 && !args[i].IsScalar() {
			return fmt.Errorf("%sis %s: must be a scalar", name, args[i])
		}
	}
	return nil
}
