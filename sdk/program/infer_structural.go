package program

import (
	"fmt"
	"math/bits"
	"slices"
)

// Result types of shape operations, reductions, products and factorizations; infer.go
// has those of sources and elementwise operations.

func inferShape(op Op, args []Type, attr Attr, want Type) (Type, error) {
	x := args[0]
	switch op {
	case OpReshape:
		t := Type{x.DType, want.Shape}
		if err := t.check(); err != nil {
			return Type{}, err
		}
		if t.Size() != x.Size() {
			return Type{}, fmt.Errorf("cannot reshape %s to %v: %d elements against %d", x, t.Shape, x.Size(), t.Size())
		}
		return t, nil
	case OpTranspose:
		return inferTranspose(x, attr.Axes)
	case OpBroadcast:
		return inferBroadcast(x, attr.Axes, want)
	case OpSlice:
		return inferSlice(x, attr)
	default: // OpConcatenate
		return inferConcatenate(args, attr.Axes)
	}
}

func inferTranspose(x Type, perm []int) (Type, error) {
	if len(perm) != x.Rank() {
		return Type{}, fmt.Errorf("permutation %v for %d axes", perm, x.Rank())
	}
	seen := make([]bool, x.Rank())
	shape := make([]int, x.Rank())
	for i, a := range perm {
		if a < 0 || a >= x.Rank() || seen[a] {
			return Type{}, fmt.Errorf("%v is not a permutation of %d axes", perm, x.Rank())
		}
		seen[a], shape[i] = true, x.Shape[a]
	}
	return Type{x.DType, shape}, nil
}

func inferBroadcast(x Type, axes []int, want Type) (Type, error) {
	t := Type{x.DType, want.Shape}
	if err := t.check(); err != nil {
		return Type{}, err
	}
	if len(axes) != x.Rank() {
		return Type{}, fmt.Errorf("%d axes named for an operand with %d", len(axes), x.Rank())
	}
	if err := checkAxes(axes, t.Rank()); err != nil {
		return Type{}, err
	}
	for i, a := range axes {
		if d := x.Shape[i]; d != 1 && d != t.Shape[a] {
			return Type{}, fmt.Errorf("operand axis %d has %d elements, result axis %d has %d: must be equal or 1", i, d, a, t.Shape[a])
		}
	}
	return t, nil
}

func inferSlice(x Type, attr Attr) (Type, error) {
	n := x.Rank()
	if len(attr.Start) != n || len(attr.Limit) != n || len(attr.Stride) != n {
		return Type{}, fmt.Errorf("start, limit and stride need one number for each of %d axes", n)
	}
	shape := make([]int, n)
	for i, d := range x.Shape {
		start, limit, stride := attr.Start[i], attr.Limit[i], attr.Stride[i]
		if start < 0 || start >= limit || limit > d || stride < 1 {
			return Type{}, fmt.Errorf("axis %d: start %d, limit %d, stride %d do not select from %d elements", i, start, limit, stride, d)
		}
		shape[i] = (limit-start-1)/stride + 1
	}
	return Type{x.DType, shape}, nil
}

func inferConcatenate(args []Type, axes []int) (Type, error) {
	x := args[0]
	if len(axes) != 1 || axes[0] < 0 || axes[0] >= x.Rank() {
		return Type{}, fmt.Errorf("axis %v: give one axis of %s", axes, x)
	}
	axis := axes[0]
	shape := slices.Clone(x.Shape)
	for _, y := range args[1:] {
		if y.DType != x.DType || y.Rank() != x.Rank() {
			return Type{}, fmt.Errorf("cannot join %s and %s", x, y)
		}
		for i, d := range y.Shape {
			if i == axis {
				shape[i] += d
			} else if d != x.Shape[i] {
				return Type{}, fmt.Errorf("cannot join %s and %s along axis %d", x, y, axis)
			}
		}
	}
	return Type{x.DType, shape}, nil
}

func inferReduce(x Type, axes []int) (Type, error) {
	if err := need(x, Float, Int, Uint); err != nil {
		return Type{}, err
	}
	if len(axes) == 0 {
		return Type{}, fmt.Errorf("names no axis to fold")
	}
	if err := checkAxes(axes, x.Rank()); err != nil {
		return Type{}, err
	}
	return Type{x.DType, without(x.Shape, axes)}, nil
}

func inferLinear(op Op, args []Type, attr Attr) (Type, error) {
	if err := need(args[0], Float); err != nil {
		return Type{}, err
	}
	if op == OpDot {
		return inferDot(args[0], args[1], attr)
	}
	x := args[0]
	if x.IsScalar() {
		return Type{}, fmt.Errorf("takes at least one axis")
	}
	d := x.Shape[x.Rank()-1]
	if attr.Block < 1 || bits.OnesCount(uint(attr.Block)) != 1 || d%attr.Block != 0 {
		return Type{}, fmt.Errorf("block %d is not a power of two dividing the last axis (%d)", attr.Block, d)
	}
	return x, nil
}

func inferDot(x, y Type, attr Attr) (Type, error) {
	if err := need(y, Float); err != nil {
		return Type{}, err
	}
	pairs := []struct {
		name string
		l, r []int
	}{{"contracted", attr.LhsContract, attr.RhsContract}, {"batch", attr.LhsBatch, attr.RhsBatch}}
	for _, p := range pairs {
		if len(p.l) != len(p.r) {
			return Type{}, fmt.Errorf("%d %s axes on the left, %d on the right", len(p.l), p.name, len(p.r))
		}
		for i := range p.l {
			l, r := p.l[i], p.r[i]
			if l < 0 || l >= x.Rank() || r < 0 || r >= y.Rank() || x.Shape[l] != y.Shape[r] {
				return Type{}, fmt.Errorf("%s axes %d of %s and %d of %s do not match", p.name, l, x, r, y)
			}
		}
	}
	lhs := slices.Concat(attr.LhsBatch, attr.LhsContract)
	rhs := slices.Concat(attr.RhsBatch, attr.RhsContract)
	if repeats(lhs) || repeats(rhs) {
		return Type{}, fmt.Errorf("an axis is named twice")
	}
	shape := []int{}
	for _, a := range attr.LhsBatch {
		shape = append(shape, x.Shape[a])
	}
	shape = append(shape, without(x.Shape, lhs)...)
	shape = append(shape, without(y.Shape, rhs)...)
	return Type{Float, shape}, nil
}

func inferLinalg(op Op, args []Type) (Type, error) {
	x := args[0]
	if err := need(x, Float); err != nil {
		return Type{}, err
	}
	n := x.Rank()
	if n < 2 {
		return Type{}, fmt.Errorf("takes matrices, got %s", x)
	}
	rows, cols := x.Shape[n-2], x.Shape[n-1]
	if op == OpSortColumns {
		if keys := FloatType(slices.Concat(x.Shape[:n-2], x.Shape[n-1:])...); !args[1].Equal(keys) {
			return Type{}, fmt.Errorf("takes keys of type %s for the columns of %s, got %s", keys, x, args[1])
		}
		return x, nil
	}
	if op == OpQR {
		if rows < cols {
			return Type{}, fmt.Errorf("takes matrices with at least as many rows as columns, got %s", x)
		}
		return x, nil
	}
	if rows != cols {
		return Type{}, fmt.Errorf("takes square matrices, got %s", x)
	}
	if op == OpEighValues {
		return Type{Float, x.Shape[:n-1]}, nil
	}
	return x, nil
}

// checkAxes fails unless axes are strictly increasing and below rank.
func checkAxes(axes []int, rank int) error {
	for i, a := range axes {
		if a < 0 || a >= rank {
			return fmt.Errorf("axis %d does not exist: there are %d", a, rank)
		}
		if i > 0 && a <= axes[i-1] {
			return fmt.Errorf("axes %v are not strictly increasing", axes)
		}
	}
	return nil
}

func repeats(axes []int) bool {
	for i, a := range axes {
		if slices.Contains(axes[:i], a) {
			return true
		}
	}
	return false
}

// without returns the shape less the given axes.
func without(shape, axes []int) []int {
	kept := []int{}
	for i, d := range shape {
		if !slices.Contains(axes, i) {
			kept = append(kept, d)
		}
	}
	return kept
}
