package cpu

import (
	"fmt"
	"math"
	"slices"

	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/sdk/program"
)

// opFunction + op is the code of a float operation op that has no loop: its scalar function
// ([program.Op.Scalar]) is applied to each element.
const (
	opFunction = loops.Count
	functions  = 1 << 7 // upper bound of the numbers of such operations
)

// Opcodes in addition to those of package loops.
const (
	opInput      loops.Op = opFunction + functions + iota
	opTable               // the same for all rows
	opFill                // a scalar in every element
	opSpread              // repeats elements
	opGather              // elements by index
	opClamp               // a within b and c, which are scalars
	opSelect              // a ≠ 0: b, else c
	opFold                // folds groups by n.fold
	opSumMul              // groups of a·b
	opLargest             // groups of |a|
	opRotate              // blocks
	opRoundSmall          // see loops.RoundSmall
	opRoundMul            // the same, times b, which has a number for each group
	opNear                // |a − b| ≤ c, which has a number for each group
	opExpNeg              // exp(−a)
	opExpSub              // exp(a − b), b a number for each group
	opIntoAdd             // b/(a + c), which are scalars
	opMulMul              // (a·b)·c
	opSiLUSlope           // see loops.SiLUSlope
	opMulMulS             // (a·b)·s; s and t are scalars, here and below
	opLinAdd              // a·s + b·t
	opLinSub              // a·s − b·t
	opLinMul              // a·s + (b·c)·t
	opSqrtLin             // √a·s + t
	opReduce              // folds all elements of the tensor by n.fold
	opReduceMul           // Σ a·b
)

// A ref is the lowered form of a program's value: a scalar, or a node each of whose elements stands
// for repeat consecutive elements of the value. A broadcast along the last axes is thus never
// written to memory.
type ref struct {
	scalar bool
	id     int // index of the scalar or node
	repeat int // of a node
	// partial is the operation by which some axes of a node are reduced; it may also count rows. Such
	// a value is only an intermediate step of a reduction over all axes, and is never computed.
	partial loops.Op
}

// A node computes some elements of every row, or is a table that all rows share.
type node struct {
	op     loops.Op
	in     []operand
	size   int  // elements in a row
	shared bool // of an input or table
	input  int  // of an opInput
	table  []float32
	index  []int32  // of an opGather
	fold   loops.Op // of an opFold or opReduce
	group  int      // elements of a group or block; for an opReduce, the reduction's index
	level  int      // the length of the longest chain of reductions that it depends on
}

// An operand is a scalar, or a node each of whose elements is repeated for repeat elements of the
// result.
type operand struct {
	scalar bool
	id     int
	repeat int
}

// analysis is a program divided into scalars, nodes and reductions.
type analysis struct {
	p    *program.Program
	rows int
	// flat means that any run of elements can be a row: operations mix elements only in blocks.
	flat       bool
	refs       []ref // of the values of p
	nodes      []node
	reductions []reduction
	scalars    *scalars
	outputs    []int       // nodes; −1 for scalars
	numbers    []int       // scalars; −1 for tensors
	fills      map[int]int // nodes filled with a scalar, by the scalar
	spreads    map[spread]int
}

type reduction struct {
	fold         loops.Op
	node, scalar int
	phase        int // the sweep over the tensors that computes it
}

// spread identifies a node that repeats each element of another node.
type spread struct{ node, repeat int }

func (a *analysis) run() error {
	a.scalars.constant(0)
	for i, in := range a.p.Inputs {
		switch l, ok := passes.LayoutOf(in.Type, a.rows); {
		case in.Type.Size() == 1:
			id := a.scalars.add(scalar{kind: scalarInput, input: i})
			a.refs = append(a.refs, ref{scalar: true, id: id})
		case a.isShared(program.ID(i)):
			a.refs = append(a.refs, a.add(node{op: opInput, input: i, size: in.Type.Shape[1], shared: true}))
		case !ok:
			return a.refusal("input %q of type %s is not divided into rows", in.Name, in.Type)
		default:
			a.refs = append(a.refs, a.add(node{op: opInput, input: i, size: l.Size()}))
		}
	}
	for i := range a.p.Nodes {
		n := &a.p.Nodes[i]
		r, err := a.value(n)
		if err != nil {
			return err
		}
		a.refs = append(a.refs, r)
	}
	for _, o := range a.p.Outputs {
		t, r := a.p.TypeOf(o.Value), a.refs[o.Value]
		if r.scalar && t.Size() == 1 {
			a.outputs, a.numbers = append(a.outputs, -1), append(a.numbers, r.id)
			continue
		}
		l, ok := passes.LayoutOf(t, a.rows)
		if !ok || r.partial != loops.None || a.isShared(o.Value) {
			return a.refusal("output %q of type %s is not divided into rows", o.Name, t)
		}
		if !r.scalar && a.nodes[r.id].shared && a.nodes[r.id].size*r.repeat*a.rows != int(t.Size()) {
			return a.refusal("output %q is shared by all rows", o.Name)
		}
		a.outputs, a.numbers = append(a.outputs, a.full(r, l.Size())), append(a.numbers, -1)
	}
	return nil
}

func (a *analysis) isShared(id program.ID) bool {
	return !a.flat && passes.IsShared(a.p, id, a.rows)
}

func (a *analysis) add(n node) ref {
	for _, x := range n.in {
		if x.scalar {
			n.level = max(n.level, a.scalars.list[x.id].level)
		} else {
			n.level = max(n.level, a.nodes[x.id].level)
		}
	}
	a.nodes = append(a.nodes, n)
	return ref{id: len(a.nodes) - 1, repeat: 1}
}

// refusal returns a refusal of the program for a reason that is not one particular operation.
func (a *analysis) refusal(format string, args ...any) error {
	return &passes.Refusal{Program: a.p.Name, Reason: fmt.Sprintf(format, args...)}
}

func (a *analysis) refuse(n *program.Node, format string, args ...any) error {
	node := fmt.Sprintf("%%%d = %s", len(a.refs), n.Op)
	return &passes.Refusal{Program: a.p.Name, Node: node, Reason: fmt.Sprintf(format, args...)}
}

// value returns the ref of the result of n.
func (a *analysis) value(n *program.Node) (ref, error) {
	if reason, ok := passes.UnsupportedByRows[n.Op]; ok {
		return ref{}, a.refuse(n, "%s", reason)
	}
	info, _ := n.Op.Info()
	if slices.ContainsFunc(n.Args, a.isShared) &&
		(info.Class > program.ClassElementwise || n.Type.Shape[0] == 1) && n.Op != program.OpBroadcast {
		return ref{}, a.refuse(n, "it reads a value that all rows share")
	}
	partial := slices.ContainsFunc(n.Args,
		func(id program.ID) bool { return a.refs[id].partial != loops.None })
	switch n.Op {
	case program.OpReduceSum, program.OpReduceMax, program.OpReduceMin, program.OpReshape,
		program.OpStopGradient:
	default:
		if partial {
			return ref{}, a.refuse(n, "an operand is reduced over some of the axes across rows")
		}
	}
	switch n.Op {
	case program.OpConstant:
		switch {
		case len(n.Attr.Floats) == 1:
			return a.constantRef(float32(n.Attr.Floats[0])), nil
		case len(n.Attr.Ints) == 1 && n.Type.DType == program.Bool:
			return a.constantRef(float32(n.Attr.Ints[0])), nil
		case len(n.Attr.Ints) == 1:
			return a.constantRef(math.Float32frombits(uint32(n.Attr.Ints[0]))), nil
		}
		return ref{}, a.refuse(n, "a constant has more than one element")
	case program.OpIota:
		return a.iota(n)
	case program.OpStopGradient, program.OpBitcast:
		return a.refs[n.Args[0]], nil
	case program.OpReshape:
		r := a.refs[n.Args[0]] // the order of elements in a row is the same
		if _, ok := passes.LayoutOf(n.Type, a.rows); !r.scalar && r.partial == loops.None && !ok &&
			n.Type.Size() > 1 {
			return ref{}, a.refuse(n, "%s is not divided into rows", n.Type)
		}
		return r, nil
	case program.OpBroadcast:
		return a.broadcast(n)
	case program.OpReduceSum, program.OpReduceMax, program.OpReduceMin:
		return a.reduce(n)
	case program.OpHadamard:
		l, ok := passes.LayoutOf(n.Type, a.rows)
		switch {
		case !ok:
			return ref{}, a.refuse(n, "%s is not divided into rows", n.Type)
		case l.Size()%n.Attr.Block != 0:
			return ref{}, a.refuse(n, "its blocks span several rows")
		case n.Attr.Block == 1:
			return a.refs[n.Args[0]], nil
		}
		in := []operand{{id: a.full(a.refs[n.Args[0]], l.Size()), repeat: 1}}
		return a.add(node{op: opRotate, in: in, size: l.Size(), group: n.Attr.Block}), nil
	}
	return a.elementwise(n)
}

func (a *analysis) constantRef(x float32) ref {
	return ref{scalar: true, id: a.scalars.constant(x)}
}

func (a *analysis) iota(n *program.Node) (ref, error) {
	if n.Type.Size() == 1 {
		return a.constantRef(0), nil
	}
	l, ok := passes.LayoutOf(n.Type, a.rows)
	if !ok || l.Axis(n.Attr.Axes[0]) == 0 || l.Merged && n.Attr.Axes[0] < l.Outer {
		return ref{}, a.refuse(n, "it counts along rows")
	}
	axis := l.Axis(n.Attr.Axes[0]) - 1
	inner := passes.Elements(l.Row[axis+1:])
	table := make([]float32, l.Size())
	for i := range table {
		count := i / inner % l.Row[axis]
		if table[i] = float32(count); n.Type.DType != program.Float {
			table[i] = math.Float32frombits(uint32(count))
		}
	}
	return a.add(node{op: opTable, table: table, size: len(table), shared: true}), nil
}

func (a *analysis) broadcast(n *program.Node) (ref, error) {
	r, from := a.refs[n.Args[0]], a.p.TypeOf(n.Args[0])
	if r.scalar {
		return r, nil
	}
	to, ok := passes.LayoutOf(n.Type, a.rows)
	if !ok {
		return ref{}, a.refuse(n, "%s is not divided into rows", n.Type)
	}
	if a.isShared(n.Args[0]) {
		if axes := n.Attr.Axes; axes[len(axes)-1] != len(n.Type.Shape)-1 ||
			!slices.Equal(to.Row, from.Shape[1:]) {
			return ref{}, a.refuse(n, "a shared vector is not a row")
		}
		return r, nil
	}
	ones := program.Type{DType: from.DType, Shape: slices.Repeat([]int{1}, len(n.Type.Shape))}
	for i, axis := range n.Attr.Axes {
		ones.Shape[axis] = from.Shape[i]
	}
	return a.widen(n, r, ones, n.Type)
}

// widen broadcasts a value to another shape of the same rank.
func (a *analysis) widen(n *program.Node, r ref, from, to program.Type) (ref, error) {
	t, ok := passes.LayoutOf(to, a.rows)
	if len(from.Shape) == 0 { // the only element of a single row
		from.Shape = slices.Repeat([]int{1}, len(to.Shape))
	}
	f, fits := passes.LayoutOf(from, a.rows)
	if !ok || !fits || f.Outer != t.Outer || len(f.Row) != len(t.Row) ||
		!slices.Equal(from.Shape[:f.Outer], to.Shape[:t.Outer]) {
		return ref{}, a.refuse(n, "rows of its operands are repeated")
	}
	last := len(f.Row) - 1 // axis that is not repeated
	for last >= 0 && f.Row[last] == 1 {
		last--
	}
	if slices.Equal(f.Row[:last+1], t.Row[:last+1]) {
		r.repeat *= passes.Elements(t.Row[last+1:])
		return r, nil
	}
	index := make([]int32, t.Size())
	for i := range index {
		at, rest, stride := 0, i, 1
		for axis, d := range slices.Backward(t.Row) {
			if f.Row[axis] > 1 {
				at += rest % d * stride
			}
			stride, rest = stride*f.Row[axis], rest/d
		}
		index[i] = int32(at / r.repeat)
	}
	return a.gather(r, index), nil
}

func (a *analysis) gather(r ref, index []int32) ref {
	return a.add(node{op: opGather, in: []operand{{id: r.id, repeat: 1}}, size: len(index),
		index: index})
}

// full returns a node that holds every element of a value in memory. size is the number of elements
// in a row.
func (a *analysis) full(r ref, size int) int {
	switch {
	case r.scalar:
		if id, ok := a.fills[r.id]; ok && a.nodes[id].size == size {
			return id
		}
		id := a.add(node{op: opFill, in: []operand{{scalar: true, id: r.id}}, size: size}).id
		a.fills[r.id] = id
		return id
	case r.repeat == 1 && !a.nodes[r.id].shared:
		return r.id
	}
	key := spread{r.id, r.repeat}
	if _, ok := a.spreads[key]; !ok {
		in := []operand{{id: r.id, repeat: r.repeat}}
		a.spreads[key] = a.add(node{op: opSpread, in: in, size: a.nodes[r.id].size * r.repeat}).id
	}
	return a.spreads[key]
}

// reduce lowers a reduction over axes within rows, or over all axes.
func (a *analysis) reduce(n *program.Node) (ref, error) {
	t := a.p.TypeOf(n.Args[0])
	r := a.refs[n.Args[0]]
	if t.Size() == n.Type.Size() {
		return r, nil
	}
	op := foldOf(n.Op, t.DType)
	if r.partial != loops.None {
		return a.reduceAll(n, op, r)
	}
	l, ok := passes.LayoutOf(t, a.rows)
	if !ok {
		return ref{}, a.refuse(n, "its operand is not divided into rows")
	}
	folded := make([]bool, len(l.Row))
	group, whole := 1, a.flat
	for _, i := range n.Attr.Axes {
		switch {
		case t.Shape[i] == 1:
		case a.flat || i < l.Outer:
			whole = true
		default:
			folded[l.Axis(i)-1] = true
			group *= t.Shape[i]
		}
	}
	constant := r.scalar || !whole && r.repeat%group == 0 && trailing(l.Row, folded)
	switch {
	case n.Op != program.OpReduceSum && constant: // an extreme of equal elements
		if !r.scalar {
			r.repeat /= group
		}
		return r, nil
	case whole:
		return a.reduceAll(n, op, ref{id: a.full(r, l.Size()), repeat: 1})
	}
	id := a.full(r, l.Size())
	if !trailing(l.Row, folded) {
		id = a.gather(ref{id: id, repeat: 1}, movedLast(l.Row, folded)).id
	}
	return a.add(node{op: opFold, fold: op, in: []operand{{id: id, repeat: 1}}, size: l.Size() / group,
		group: group}), nil
}

// reduceAll reduces a node, or its partial reduction, further. If one element remains, it becomes a
// single reduction of all elements.
func (a *analysis) reduceAll(n *program.Node, op loops.Op, r ref) (ref, error) {
	switch {
	case op != loops.Add && op != loops.Max && op != loops.Min:
		return ref{}, a.refuse(n, "it reduces rows of integers")
	case r.partial != loops.None && r.partial != op:
		return ref{}, a.refuse(n, "axes are reduced by different operations")
	case n.Type.Size() > 1:
		r.partial = op
		return r, nil
	}
	for _, d := range a.reductions {
		if d.fold == op && d.node == r.id {
			return ref{scalar: true, id: d.scalar}, nil
		}
	}
	s := a.scalars.add(scalar{kind: scalarReduction, level: a.nodes[r.id].level + 1})
	a.reductions = append(a.reductions, reduction{fold: op, node: r.id, scalar: s})
	return ref{scalar: true, id: s}, nil
}

// trailing reports whether the reduced axes are the last ones, apart from axes of size one.
func trailing(dims []int, folded []bool) bool {
	seen := false
	for i, d := range dims {
		if d > 1 && seen && !folded[i] {
			return false
		}
		seen = seen || folded[i]
	}
	return true
}

// movedLast returns the permutation of a row's elements that puts the reduced axes last.
func movedLast(dims []int, folded []bool) []int32 {
	strides := passes.Strides(dims)
	var order []int
	for _, want := range []bool{false, true} {
		for i := range dims {
			if folded[i] == want {
				order = append(order, i)
			}
		}
	}
	index := make([]int32, passes.Elements(dims))
	for i := range index {
		rest, at := i, 0
		for _, axis := range slices.Backward(order) {
			at += rest % dims[axis] * strides[axis]
			rest /= dims[axis]
		}
		index[i] = int32(at)
	}
	return index
}

// leastRun is the minimum length of a run of equal elements that is processed by a loop of its own.
// Operands with shorter runs are written to memory in full: with 64, a quantizer in groups of 64
// took six times as long, because a loop of four vectors costs less than its call.
const leastRun = 256

// elementwise lowers an operation so that repeated elements are computed only once.
func (a *analysis) elementwise(n *program.Node) (ref, error) {
	op, swapped, err := a.operation(n)
	if err != nil {
		return ref{}, err
	}
	args := slices.Clone(n.Args)
	if swapped {
		slices.Reverse(args)
	}
	refs := make([]ref, len(args))
	size, common := 0, 0
	for i, id := range args {
		r, t := a.refs[id], a.p.TypeOf(id)
		switch {
		case r.scalar:
		case a.isShared(id):
			if l, ok := passes.LayoutOf(n.Type, a.rows); !ok || !slices.Equal(l.Row, t.Shape[1:]) {
				return ref{}, a.refuse(n, "a shared vector is not a row")
			}
		default:
			if r, err = a.widen(n, r, t, n.Type); err != nil {
				return ref{}, err
			}
		}
		if !r.scalar {
			size = a.nodes[r.id].size * r.repeat
			common = gcd(common, r.repeat)
		}
		refs[i] = r
	}
	if op == loops.None { // a conversion without an effect
		return refs[0], nil
	}
	switch { // operands of the loop that the node lacks
	case n.Op == program.OpConvert && (op == loops.Ne || op == loops.NeBits):
		refs = append(refs, a.constantRef(0))
	case n.Op == program.OpNot && op == loops.Sub:
		refs = []ref{a.constantRef(1), refs[0]}
	}
	if size == 0 {
		return ref{scalar: true, id: a.scalars.operation(op, refs)}, nil
	}
	return ref{id: a.elements(op, refs, size/common, common), repeat: common}, nil
}

func (a *analysis) elements(op loops.Op, refs []ref, size, common int) int {
	if (op == loops.Add || op == loops.Mul) && refs[0].scalar {
		slices.Reverse(refs)
	}
	in := make([]operand, len(refs))
	longest := 1
	for i, r := range refs {
		in[i] = operand{r.scalar, r.id, 1}
		if !r.scalar {
			in[i].repeat = r.repeat / common
			longest = max(longest, in[i].repeat)
		}
	}
	for i, x := range in {
		if !x.scalar && x.repeat > 1 && (x.repeat < leastRun || x.repeat != longest ||
			op == opClamp && i == 0) {
			in[i] = operand{id: a.full(ref{id: x.id, repeat: x.repeat}, size), repeat: 1}
		}
	}
	if id, ok := a.fold(op, in, size); ok {
		return id
	}
	return a.add(node{op: op, in: in, size: size}).id
}

// fold computes an operation on tables and constants, which becomes a table.
func (a *analysis) fold(op loops.Op, in []operand, size int) (id int, ok bool) {
	var parts [3]part
	tables := 0
	for i, x := range in {
		switch {
		case x.scalar && a.scalars.list[x.id].kind == scalarConstant:
			parts[i].number = a.scalars.list[x.id].value
		case !x.scalar && x.repeat == 1 && a.nodes[x.id].op == opTable:
			parts[i].elements = a.nodes[x.id].table
			tables++
		default:
			return 0, false
		}
	}
	if tables == 0 {
		return 0, false
	}
	table := make([]float32, size)
	elements(op, table, &parts)
	return a.add(node{op: opTable, table: table, size: size, shared: true}).id, true
}

func gcd(x, y int) int {
	for y != 0 {
		x, y = y, x%y
	}
	return x
}

// scalars holds the one-element values of a program in topological order.
type scalars struct{ list []scalar }

type scalarKind uint8

const (
	scalarConstant scalarKind = iota
	scalarInput
	scalarOp
	scalarReduction
)

type scalar struct {
	kind  scalarKind
	value float32 // of a constant
	input int     // position of an input
	op    loops.Op
	args  [3]int
	level int // 1 + the phase after which it is known; 0 before all phases
}

func (s *scalars) add(v scalar) int {
	s.list = append(s.list, v)
	return len(s.list) - 1
}

// constant returns the index of a constant with the bits of v, and adds it if it is new.
func (s *scalars) constant(v float32) int {
	for i, c := range s.list {
		if c.kind == scalarConstant && math.Float32bits(c.value) == math.Float32bits(v) {
			return i
		}
	}
	return s.add(scalar{kind: scalarConstant, value: v})
}

func (s *scalars) operation(op loops.Op, args []ref) int {
	v := scalar{kind: scalarOp, op: op}
	for i, r := range args {
		v.args[i] = r.id
		v.level = max(v.level, s.list[r.id].level)
	}
	return s.add(v)
}

func (s *scalars) evaluate(level int, env []float32) {
	for i := range s.list {
		v := &s.list[i]
		if v.kind != scalarOp || v.level != level {
			continue
		}
		x, y, z := env[v.args[0]], env[v.args[1]], env[v.args[2]]
		switch f := functionOf(v.op); {
		case f != nil:
			env[i] = float32(f(float64(x), float64(y)))
		case v.op == opClamp:
			env[i] = loops.Clamp1(x, y, z)
		case v.op == opSelect:
			env[i] = loops.Select1(x, y, z)
		case isBinary(v.op):
			env[i] = loops.Two(v.op, x, y)
		default:
			env[i] = loops.One(v.op, x)
		}
	}
}
