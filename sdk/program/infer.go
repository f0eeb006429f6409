package program

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
)

// infer returns the type of a node's result. For most operations it follows from the
// operands' types; for constant, reshape, … it is given by want.
func infer(op Op, args []Type, attr Attr, want Type) (Type, error) {
	r, ok := rows[op]
	if !ok {
		return Type{}, fmt.Errorf("operation %d does not exist", uint16(op))
	}
	if r.Arity >= 0 && len(args) != r.Arity {
		return Type{}, fmt.Errorf("takes %d operands, got %d", r.Arity, len(args))
	}
	if r.Arity < 0 && len(args) == 0 {
		return Type{}, fmt.Errorf("takes at least one operand, got none")
	}
	if err := attr.check(r.uses); err != nil {
		return Type{}, err
	}
	return r.infer(args, attr, want)
}

func need(t Type, allowed ...DType) error {
	if slices.Contains(allowed, t.DType) {
		return nil
	}
	return fmt.Errorf("takes %s, got %s", joinTypes(allowed, " or "), t)
}

func inferConstant(_ []Type, attr Attr, want Type) (Type, error) {
	return want, cmp.Or(want.check(MaxSize), checkConstant(attr, want))
}

func inferIota(_ []Type, attr Attr, want Type) (Type, error) {
	if err := need(want, Float, Int, Uint); err != nil {
		return Type{}, err
	}
	if len(attr.Axes) != 1 {
		return Type{}, fmt.Errorf("needs exactly one axis, got %d", len(attr.Axes))
	}
	return want, checkAxes(attr.Axes, want.Rank())
}

func inferRandomBits(args []Type, _ Attr, want Type) (Type, error) {
	if key := (Type{Uint, []int{2}}); !args[0].Equal(key) {
		return Type{}, fmt.Errorf("takes a key of type %s, got %s", key, args[0])
	}
	return want, need(want, Uint)
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
		return fmt.Errorf("got %d elements for %s, want 1 or %d", n, want, want.Size())
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
			return fmt.Errorf("element %d is %d, out of range for %s", i, v, want.DType)
		}
	}
	return nil
}

// A typeRule infers the type of a result. The number of operands and the set of attributes have
// been checked.
type typeRule func(args []Type, attr Attr, want Type) (Type, error)

func inferUnary(types []DType) typeRule {
	return func(args []Type, _ Attr, _ Type) (Type, error) { return args[0], need(args[0], types...) }
}

func inferIsFinite(args []Type, _ Attr, _ Type) (Type, error) {
	return Type{Bool, args[0].Shape}, need(args[0], Float)
}

func inferBinary(types []DType) typeRule {
	return func(args []Type, _ Attr, _ Type) (Type, error) {
		x, y := args[0], args[1]
		if x.DType != y.DType {
			return Type{}, fmt.Errorf("operands have different element types: %s and %s", x, y)
		}
		if err := need(x, types...); err != nil {
			return Type{}, err
		}
		shape, err := elementwiseShape(x.Shape, y.Shape)
		return Type{x.DType, shape}, err
	}
}

func inferComparison(types []DType) typeRule {
	return func(args []Type, attr Attr, want Type) (Type, error) {
		t, err := inferBinary(types)(args, attr, want)
		return Type{Bool, t.Shape}, err
	}
}

// elementwiseShape applies the only rule of implicit broadcasting: a scalar combines with
// any shape; otherwise ranks are equal, and the sizes of each axis are equal or one is 1.
func elementwiseShape(a, b []int) ([]int, error) {
	if len(a) == 0 {
		return b, nil
	}
	if len(b) == 0 {
		return a, nil
	}
	mismatch := func() error {
		return fmt.Errorf("shapes %v and %v do not match: ranks must be equal and axes equal or 1 "+
			"(reshape or broadcast one operand)", a, b)
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

func inferClamp(args []Type, _ Attr, _ Type) (Type, error) {
	for i, name := range []string{"", "lower bound ", "upper bound "} {
		if err := need(args[i], Float); err != nil {
			return Type{}, fmt.Errorf("%s%w", name, err)
		}
		if i > 0 && !args[i].IsScalar() {
			return Type{}, fmt.Errorf("%sis %s, want a scalar", name, args[i])
		}
	}
	return args[0], nil
}

func inferSelect(args []Type, _ Attr, _ Type) (Type, error) {
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
}

func inferConvert(args []Type, _ Attr, want Type) (Type, error) {
	if !want.DType.Valid() {
		return Type{}, fmt.Errorf("cannot convert to %s", want.DType)
	}
	return Type{want.DType, args[0].Shape}, nil
}

func inferBitcast(args []Type, _ Attr, want Type) (Type, error) {
	if err := need(args[0], Float, Int, Uint); err != nil {
		return Type{}, err
	}
	return Type{want.DType, args[0].Shape}, need(want, Float, Int, Uint)
}

func inferReshape(args []Type, _ Attr, want Type) (Type, error) {
	x, t := args[0], Type{args[0].DType, want.Shape}
	if t.Size() != x.Size() {
		return Type{}, fmt.Errorf("cannot reshape %s to %v: got %d elements, want %d",
			x, t.Shape, x.Size(), t.Size())
	}
	return t, nil
}

func inferTranspose(args []Type, attr Attr, _ Type) (Type, error) {
	x, perm := args[0], attr.Axes
	if len(perm) != x.Rank() {
		return Type{}, fmt.Errorf("permutation %v does not have %d axes", perm, x.Rank())
	}
	if len(OtherAxes(x.Rank(), perm)) > 0 {
		return Type{}, fmt.Errorf("%v is not a permutation of %d axes", perm, x.Rank())
	}
	return Type{x.DType, at(x.Shape, perm)}, nil
}

func inferBroadcast(args []Type, attr Attr, want Type) (Type, error) {
	x, axes := args[0], attr.Axes
	t := Type{x.DType, want.Shape}
	if len(axes) != x.Rank() {
		return Type{}, fmt.Errorf("got %d axes for an operand with %d", len(axes), x.Rank())
	}
	if err := checkAxes(axes, t.Rank()); err != nil {
		return Type{}, err
	}
	for i, a := range axes {
		if d := x.Shape[i]; d != 1 && d != t.Shape[a] {
			const format = "operand axis %d has %d elements, result axis %d has %d: must be equal or 1"
			return Type{}, fmt.Errorf(format, i, d, a, t.Shape[a])
		}
	}
	return t, nil
}

func inferSlice(args []Type, attr Attr, _ Type) (Type, error) {
	x := args[0]
	n := x.Rank()
	if len(attr.Start) != n || len(attr.Limit) != n || len(attr.Stride) != n {
		return Type{}, fmt.Errorf("start, limit and stride need one number for each of %d axes", n)
	}
	shape := make([]int, n)
	for i, d := range x.Shape {
		start, limit, stride := attr.Start[i], attr.Limit[i], attr.Stride[i]
		if start < 0 || start >= limit || limit > d || stride < 1 {
			const format = "axis %d: start %d, limit %d, stride %d do not select from %d elements"
			return Type{}, fmt.Errorf(format, i, start, limit, stride, d)
		}
		shape[i] = (limit-start-1)/stride + 1
	}
	return Type{x.DType, shape}, nil
}

func inferConcatenate(args []Type, attr Attr, _ Type) (Type, error) {
	x, axes := args[0], attr.Axes
	if len(axes) != 1 || axes[0] < 0 || axes[0] >= x.Rank() {
		return Type{}, fmt.Errorf("got axes %v, want one axis of %s", axes, x)
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

func inferReduce(args []Type, attr Attr, _ Type) (Type, error) {
	x, axes := args[0], attr.Axes
	if err := need(x, Float, Int, Uint); err != nil {
		return Type{}, err
	}
	if len(axes) == 0 {
		return Type{}, fmt.Errorf("names no axis to reduce")
	}
	if err := checkAxes(axes, x.Rank()); err != nil {
		return Type{}, err
	}
	return Type{x.DType, at(x.Shape, OtherAxes(x.Rank(), axes))}, nil
}

func inferHadamard(args []Type, attr Attr, _ Type) (Type, error) {
	x := args[0]
	if err := need(x, Float); err != nil {
		return Type{}, err
	}
	if x.IsScalar() {
		return Type{}, fmt.Errorf("takes at least one axis")
	}
	d := x.Shape[x.Rank()-1]
	if attr.Block < 1 || bits.OnesCount(uint(attr.Block)) != 1 || d%attr.Block != 0 {
		return Type{}, fmt.Errorf("block %d is not a power of two dividing the last axis (%d)",
			attr.Block, d)
	}
	return x, nil
}

func hadamardWork(n *Node, _ []Type) float64 {
	return float64(n.Type.Size()) * float64(n.Attr.Block)
}

func inferDot(args []Type, attr Attr, _ Type) (Type, error) {
	x, y := args[0], args[1]
	if err := cmp.Or(need(x, Float), need(y, Float)); err != nil {
		return Type{}, err
	}
	pairs := []struct {
		name string
		l, r []int
	}{{"contracted", attr.LhsContract, attr.RhsContract}, {"batch", attr.LhsBatch, attr.RhsBatch}}
	for _, p := range pairs {
		if len(p.l) != len(p.r) {
			return Type{}, fmt.Errorf("got %d %s axes on the left, %d on the right",
				len(p.l), p.name, len(p.r))
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
	left, right := OtherAxes(x.Rank(), lhs), OtherAxes(y.Rank(), rhs)
	if len(left)+len(lhs) != x.Rank() || len(right)+len(rhs) != y.Rank() {
		return Type{}, fmt.Errorf("an axis is named twice")
	}
	shape := slices.Concat(at(x.Shape, attr.LhsBatch), at(x.Shape, left), at(y.Shape, right))
	return Type{Float, shape}, nil
}

func dotWork(n *Node, args []Type) float64 {
	work := float64(n.Type.Size())
	for _, a := range n.Attr.LhsContract {
		work *= float64(args[0].Shape[a])
	}
	return work
}

func matrix(x Type) (rows, cols int, err error) {
	if err := need(x, Float); err != nil {
		return 0, 0, err
	}
	n := x.Rank()
	if n < 2 {
		return 0, 0, fmt.Errorf("takes matrices, got %s", x)
	}
	return x.Shape[n-2], x.Shape[n-1], nil
}

func inferQR(args []Type, _ Attr, _ Type) (Type, error) {
	rows, cols, err := matrix(args[0])
	if err == nil && rows < cols {
		err = fmt.Errorf("takes matrices with at least as many rows as columns, got %s", args[0])
	}
	return args[0], err
}

func inferEighVectors(args []Type, _ Attr, _ Type) (Type, error) {
	rows, cols, err := matrix(args[0])
	if err == nil && rows != cols {
		err = fmt.Errorf("takes square matrices, got %s", args[0])
	}
	return args[0], err
}

func inferEighValues(args []Type, attr Attr, want Type) (Type, error) {
	t, err := inferEighVectors(args, attr, want)
	if err != nil {
		return Type{}, err
	}
	return Type{Float, t.Shape[:t.Rank()-1]}, nil
}

func inferSortColumns(args []Type, _ Attr, _ Type) (Type, error) {
	x := args[0]
	if _, _, err := matrix(x); err != nil {
		return Type{}, err
	}
	n := x.Rank()
	if keys := FloatType(slices.Concat(x.Shape[:n-2], x.Shape[n-1:])...); !args[1].Equal(keys) {
		return Type{}, fmt.Errorf("takes keys of type %s for the columns of %s, got %s", keys, x, args[1])
	}
	return x, nil
}

// inferRows checks that x consists of rows like those of the table: elements for float[n], runs of
// d elements along the last axis for float[n,d]. It returns a type with one element per row.
func inferRows(x, table Type) (Type, error) {
	if err := cmp.Or(need(x, Float), need(table, Float)); err != nil {
		return Type{}, err
	}
	switch table.Rank() {
	case 1:
		return x, nil
	case 2:
		if n := x.Rank(); n > 0 && x.Shape[n-1] == table.Shape[1] {
			return Type{Float, x.Shape[:n-1]}, nil
		}
		const format = "the last axis of %s does not have the length of the rows of the table, %s"
		return Type{}, fmt.Errorf(format, x, table)
	}
	return Type{}, fmt.Errorf("takes a table of one or two axes, got %s", table)
}

func inferNearest(args []Type, _ Attr, _ Type) (Type, error) {
	t, err := inferRows(args[0], args[1])
	return Type{Int, t.Shape}, err
}

func nearestWork(_ *Node, args []Type) float64 {
	return float64(args[0].Size()) * float64(args[1].Shape[0])
}

func inferLookup(args []Type, _ Attr, _ Type) (Type, error) {
	index, table := args[0], args[1]
	if err := need(index, Int); err != nil {
		return Type{}, fmt.Errorf("index %w", err)
	}
	if err := need(table, Float); err != nil {
		return Type{}, fmt.Errorf("table %w", err)
	}
	if table.Rank() < 1 || table.Rank() > 2 {
		return Type{}, fmt.Errorf("takes a table of one or two axes, got %s", table)
	}
	return Type{Float, slices.Concat(index.Shape, table.Shape[1:])}, nil
}

func inferScatterAdd(args []Type, _ Attr, want Type) (Type, error) {
	index, t := args[0], Type{Float, want.Shape}
	if err := need(index, Int); err != nil {
		return Type{}, fmt.Errorf("index %w", err)
	}
	rows, err := inferRows(args[1], t)
	if err == nil && !slices.Equal(rows.Shape, index.Shape) {
		err = fmt.Errorf("%s does not have an index for each row of %s", index, args[1])
	}
	return t, err
}

func inferOrder(args []Type) error {
	if err := need(args[0], Float); err != nil {
		return err
	}
	if args[0].IsScalar() {
		return fmt.Errorf("takes at least one axis")
	}
	if k := (Type{DType: Int}); !args[1].Equal(k) {
		return fmt.Errorf("takes k of type %s, got %s", k, args[1])
	}
	return nil
}

func inferTopK(args []Type, _ Attr, _ Type) (Type, error) {
	return Type{Bool, args[0].Shape}, inferOrder(args)
}

func inferOrderStatistic(args []Type, _ Attr, _ Type) (Type, error) {
	if err := inferOrder(args); err != nil {
		return Type{}, err
	}
	return Type{Float, args[0].Shape[:args[0].Rank()-1]}, nil
}

// cubicWork counts the multiplications of a factorization as n³.
func cubicWork(_ *Node, args []Type) float64 {
	x := args[0]
	return float64(x.Size()) * float64(x.Shape[x.Rank()-1])
}

func checkAxes(axes []int, rank int) error {
	for i, a := range axes {
		if a < 0 || a >= rank {
			return fmt.Errorf("axis %d does not exist: the rank is %d", a, rank)
		}
		if i > 0 && a <= axes[i-1] {
			return fmt.Errorf("axes %v are not strictly increasing", axes)
		}
	}
	return nil
}

// attributes is a set of fields of [Attr].
type attributes uint8

const (
	usesAxes     attributes = 1 << iota
	usesRange               // start, limit and stride
	usesPairs               // the axes of dot
	usesBlock               // of hadamard
	usesElements            // of a constant
	usesCall
)

type axisList struct {
	name string
	axes *[]int
	use  attributes
}

func (a *Attr) lists() []axisList {
	return []axisList{
		{"axes", &a.Axes, usesAxes},
		{"start", &a.Start, usesRange}, {"limit", &a.Limit, usesRange}, {"stride", &a.Stride, usesRange},
		{"lhs_contract", &a.LhsContract, usesPairs}, {"rhs_contract", &a.RhsContract, usesPairs},
		{"lhs_batch", &a.LhsBatch, usesPairs}, {"rhs_batch", &a.RhsBatch, usesPairs},
	}
}

// check returns an error if an attribute is set that the operation does not use, so that equivalent
// nodes are equal. It also bounds the lengths of lists, over which later checks iterate.
func (a *Attr) check(uses attributes) error {
	unused := func(name string, length int, use attributes) error {
		if uses&use == 0 && length != 0 {
			return fmt.Errorf("takes no attribute %s", name)
		}
		return nil
	}
	for _, l := range a.lists() {
		n := len(*l.axes)
		if err := unused(l.name, n, l.use); err != nil {
			return err
		}
		if n > MaxRank {
			return fmt.Errorf("attribute %s has %d entries, want at most %d", l.name, n, MaxRank)
		}
	}
	if uses&usesCall == 0 && a.Call != nil {
		return fmt.Errorf("takes no program to call")
	}
	return cmp.Or(unused("block", a.Block, usesBlock), unused("output", a.Output, usesCall),
		unused("floats", len(a.Floats), usesElements),
		unused("ints", len(a.Ints), usesElements))
}

// clone copies the lists of axes, which callers may change afterwards. The elements of
// constants, which may be many, are copied by [Builder.Table].
func (a Attr) clone() Attr {
	for _, l := range a.lists() {
		*l.axes = slices.Clone(*l.axes)
	}
	return a
}
