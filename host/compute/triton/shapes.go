package triton

import (
	"fmt"
	"math"
	"slices"

	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
)

func (w *writer) node(id program.ID, n *program.Node, args []parts) parts {
	w.current = func(reason string) error {
		node := fmt.Sprintf("%%%d = %s", id, n.Op)
		return &passes.Refusal{Program: w.p.Name, Node: node, Reason: reason}
	}
	if reason, ok := passes.UnsupportedByRows[n.Op]; ok {
		panic(w.current(reason))
	}
	l, _ := w.layout(n.Type)
	info, _ := n.Op.Info()
	if info.Class == program.ClassReduce {
		return w.reduceParts(n, l, args[0])
	}
	for _, a := range args {
		if len(a) > 1 && len(a) != len(w.pieces(l)) {
			panic(w.current("rows of its operands are divided in different ways"))
		}
	}
	return w.eachPart(l, func() value {
		tiles := lists.Map(args, func(a parts) value { return a.of(w.part) })
		return w.tileNode(n, tiles)
	})
}

// reduceParts lowers a reduction: it reduces each part and, if the divided axis is reduced,
// combines the parts.
func (w *writer) reduceParts(n *program.Node, l layout, x parts) parts {
	from, _ := w.layout(w.p.TypeOf(n.Args[0]))
	folded := w.eachPart(from, func() value { return w.tileNode(n, []value{x.of(w.part)}) })
	if len(folded) == len(w.pieces(l)) {
		return folded
	}
	for i, v := range folded[1:] {
		sum := w.apply(choose(n.Type.DType, reductions[n.Op]), folded[i], v)
		if n.Op == program.OpReduceSum && folded[i].bounded && v.bounded {
			sum.facts = between(folded[i].low+v.low, folded[i].high+v.high)
		}
		folded[i+1] = sum
	}
	return folded[len(folded)-1:]
}

// tileNode lowers one operation for one part of a row.
func (w *writer) tileNode(n *program.Node, args []value) value {
	shared := slices.ContainsFunc(n.Args, w.isShared)
	info, _ := n.Op.Info()
	switch info.Class {
	case program.ClassUnary, program.ClassBinary, program.ClassCompare, program.ClassElementwise:
		given := args
		args = w.broadcastOperands(n, args)
		shared = false // it is repeated
		w.divisor = value{}
		if n.Op == program.OpDiv && !equal(given[1].dims, args[1].dims) {
			w.divisor = given[1]
		}
	case program.ClassShape, program.ClassReduce, program.ClassLinear:
		w.requireRows(n.Type)
	}
	if shared && n.Op != program.OpBroadcast {
		panic(w.current("it reads a value that all rows share"))
	}
	return rules[n.Op](w, n, args)
}

// requireRows refuses the program if a tensor does not have elements in every row.
func (w *writer) requireRows(t program.Type) {
	if _, ok := w.layout(t); !ok && t.Size() > 1 {
		panic(w.current(fmt.Sprintf("type %s: some rows would have no elements", t)))
	}
}

// broadcastOperands broadcasts operands along the axes where another operand is longer.
func (w *writer) broadcastOperands(n *program.Node, args []value) []value {
	var dims []int
	var outer []int // the axes that count rows
	for i, a := range n.Args {
		t := w.p.TypeOf(a)
		if w.isShared(a) {
			continue
		}
		w.requireRows(t)
		l, ok := w.layout(t)
		switch {
		case !ok || len(t.Shape) == 0:
			continue
		case outer == nil:
			outer = t.Shape[:l.Outer]
		case !slices.Equal(outer, t.Shape[:l.Outer]):
			panic(w.current("rows of its operands are repeated"))
		}
		switch {
		case args[i].dims == nil:
			continue
		case dims == nil:
			dims = slices.Clone(args[i].dims)
		case len(args[i].dims) != len(dims):
			panic(w.current("rows of its operands are repeated"))
		}
		for j, d := range args[i].dims {
			dims[j] = max(dims[j], d)
		}
	}
	out := make([]value, len(args))
	for i, a := range args {
		switch {
		case w.isShared(n.Args[i]) && !w.isRow(a, dims):
			panic(w.current("a shared vector is not a full row"))
		case a.dims != nil && dims == nil:
			dims = a.dims // all are scalars, of one row
		case a.dims != nil && len(a.dims) < len(dims):
			a = w.reshapeTo(a, slices.Repeat([]int{1}, len(dims)))
		}
		out[i] = a
	}
	for i, a := range out {
		out[i] = w.broadcastTo(a, dims)
	}
	return out
}

func (w *writer) reshape(n *program.Node, args []value) value {
	l, ok := w.layout(n.Type)
	if !ok || args[0].dims == nil {
		return args[0]
	}
	return w.reshapeTo(args[0], w.dims(l))
}

func (w *writer) broadcast(n *program.Node, args []value) value {
	to, ok := w.layout(n.Type)
	from := w.p.TypeOf(n.Args[0])
	if _, rows := w.layout(from); !ok || args[0].dims == nil && !rows {
		return args[0] // a scalar
	}
	if w.isShared(n.Args[0]) {
		dims := w.dims(to)
		if axes := n.Attr.Axes; axes[len(axes)-1] != len(n.Type.Shape)-1 || !w.isRow(args[0], dims) {
			panic(w.current("a shared vector is not a full row"))
		}
		return w.broadcastTo(args[0], dims)
	}
	ones := program.Type{DType: from.DType, Shape: slices.Repeat([]int{1}, len(n.Type.Shape))}
	for i, axis := range n.Attr.Axes {
		ones.Shape[axis] = from.Shape[i]
	}
	l, ok := w.layout(ones)
	if !ok || l.Outer != to.Outer || !slices.Equal(ones.Shape[:l.Outer], n.Type.Shape[:to.Outer]) {
		panic(w.current("rows are repeated"))
	}
	if args[0].dims == nil {
		return args[0] // a number of the only row
	}
	return w.broadcastTo(w.reshapeTo(args[0], w.dims(l)), w.dims(to))
}

// isShared reports whether a value is an input of shape [1, n], which all rows share.
func (w *writer) isShared(id program.ID) bool { return passes.IsShared(w.p, id, w.rows) }

func (w *writer) isRow(shared value, dims []int) bool {
	last := len(dims) - 1
	return last >= 0 && len(shared.dims) == len(dims) && dims[last] == shared.dims[last]
}

func (w *writer) iota(n *program.Node, _ []value) value {
	l, ok := w.layout(n.Type)
	if !ok || n.Attr.Axes[0] < l.Outer {
		panic(w.current("it counts along rows"))
	}
	start := 0 // of the piece, if it divides the axis
	if l.Axis(n.Attr.Axes[0]) == l.first()+1 {
		start = w.piece(l).start
	}
	dims, axis := w.dims(l), w.axis(l, n.Attr.Axes[0])
	if dims == nil {
		return w.constant(elem(n.Type.DType), float64(start))
	}
	ones := slices.Repeat([]int{1}, len(dims))
	ones[axis] = dims[axis]
	count := w.countTo(dims[axis])
	if start > 0 {
		count = w.apply("arith.addi", count, w.number(count, float64(start)))
	}
	v := w.broadcastTo(w.reshapeTo(count, ones), dims)
	if n.Type.DType == program.Float {
		return w.cast("arith.sitofp", v, "f32")
	}
	return v
}

// reductions maps reductions to their binary operations, for floats, ints and uints.
var reductions = map[program.Op][]string{
	program.OpReduceSum: {"arith.addf", "arith.addi", "arith.addi"},
	program.OpReduceMax: {"arith.maximumf", "arith.maxsi", "arith.maxui"},
	program.OpReduceMin: {"arith.minimumf", "arith.minsi", "arith.minui"},
}

// reduction reduces axes within rows, beginning with the last.
func (w *writer) reduction(n *program.Node, args []value) value {
	t := w.p.TypeOf(n.Args[0])
	l, ok := w.layout(t)
	if !ok {
		panic(w.current("its operand does not have elements in every row"))
	}
	x, op, piece := args[0], choose(t.DType, reductions[n.Op]), w.piece(l)
	x = w.broadcastTo(x, w.dims(l))
	var known facts
	if n.Op == program.OpReduceSum {
		known = x.sumOf(l.Size())
	}
	if n.Attr.Axes[0] < l.Outer {
		panic(w.current("it reduces across rows"))
	}
	if x.dims == nil {
		return x // one element
	}
	for _, i := range slices.Backward(n.Attr.Axes) {
		axis := w.axis(l, i)
		if l.Axis(i) == l.first()+1 && piece.size < piece.padded {
			x = w.pad(x, axis, piece.size, identity(n.Op, t.DType))
		}
		x = w.fold(op, x, axis)
	}
	for w.tile == 1 && x.dims != nil && passes.Elements(x.dims) == 1 {
		x = w.fold(op, x, 0) // to a scalar
	}
	x.facts = known
	return x
}

func (w *writer) pad(x value, axis, size int, by float64) value {
	ones := slices.Repeat([]int{1}, len(x.dims))
	ones[axis] = x.dims[axis]
	index := w.broadcastTo(w.reshapeTo(w.countTo(x.dims[axis]), ones), x.dims)
	return w.selectValue(w.below(index, size), x, w.number(x, by))
}

func identity(op program.Op, d program.DType) float64 {
	lowest, highest := math.Inf(-1), math.Inf(1)
	switch d {
	case program.Int:
		lowest, highest = math.MinInt32, math.MaxInt32
	case program.Uint:
		lowest, highest = 0, math.MaxUint32
	}
	switch op {
	case program.OpReduceMax:
		return lowest
	case program.OpReduceMin:
		return highest
	}
	return 0
}

func (w *writer) fold(op string, x value, axis int) value {
	dims := slices.Delete(slices.Clone(x.dims), axis, axis+1)
	if len(dims) == 0 {
		dims = nil
	}
	v := w.set(x.elem, dims, `"tt.reduce"(%s) <{axis = %d : i32}> ({`, x.name, axis)
	w.line("^bb0(%%a: %s, %%b: %s):", x.elem, x.elem)
	w.line("  %%c = %s %%a, %%b : %s", op, x.elem)
	w.line("  tt.reduce.return %%c : %s", x.elem)
	w.line("}) : (%s) -> %s", x.typ(), v.typ())
	return v
}
