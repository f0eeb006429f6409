package rows

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/compute/pass/byrow"
	"github.com/cage-qat/cage/sdk/program"
)

// uses counts how often nodes are read; 0 for those that are not needed.
func (a *analysis) uses() []int {
	uses := make([]int, len(a.nodes))
	for _, id := range a.outputs {
		uses[id]++
	}
	for i := len(a.nodes) - 1; i >= 0; i-- {
		if uses[i] == 0 {
			continue
		}
		for _, x := range a.nodes[i].in {
			if !x.scalar {
				uses[x.id]++
			}
		}
	}
	return uses
}

// fuse replaces operations by others with the same results that take fewer passes. Nodes stand behind their operands.
func (a *analysis) fuse() {
	uses := a.uses()
	once := func(x operand, op loops.Op) bool {
		return !x.scalar && x.repeat == 1 && a.nodes[x.id].op == op && uses[x.id] == 1
	}
	for i := range a.nodes {
		n := &a.nodes[i]
		switch {
		case uses[i] == 0:
		case n.op == opFold && n.fold == loops.Add && once(n.in[0], loops.Mul) && a.dense(a.nodes[n.in[0].id].in):
			n.op, n.in = opSumMul, a.nodes[n.in[0].id].in
		case n.op == opFold && n.fold == loops.Max && once(n.in[0], loops.Abs) && a.dense(a.nodes[n.in[0].id].in):
			n.op, n.in = opLargest, a.nodes[n.in[0].id].in
		case n.op == opClamp && once(n.in[0], loops.Round) && a.limits(n.in[1:], true):
			// whole numbers are rounded to themselves
			round := &a.nodes[n.in[0].id]
			round.op, round.in = opClamp, append(slices.Clone(round.in), n.in[1:]...)
			n.op, n.in = opRoundSmall, n.in[:1]
		case n.op == loops.Round && !n.in[0].scalar && a.nodes[n.in[0].id].op == opClamp && a.limits(a.nodes[n.in[0].id].in[1:], false):
			n.op = opRoundSmall
		case n.op == loops.Mul && once(n.in[0], opRoundSmall) && number(n.in[1]):
			n.op, n.in = opRoundMul, []operand{a.nodes[n.in[0].id].in[0], n.in[1]}
		case n.op == loops.Mul && once(n.in[1], opRoundSmall) && number(n.in[0]):
			n.op, n.in = opRoundMul, []operand{a.nodes[n.in[1].id].in[0], n.in[0]}
		case n.op == loops.Le && once(n.in[0], loops.Abs) && number(n.in[1]):
			if abs := a.nodes[n.in[0].id]; once(abs.in[0], loops.Sub) && a.dense(a.nodes[abs.in[0].id].in) {
				n.op, n.in = opNear, append(slices.Clone(a.nodes[abs.in[0].id].in), n.in[1])
			}
		case n.op == loops.Exp && once(n.in[0], loops.Neg) && a.dense(a.nodes[n.in[0].id].in):
			n.op, n.in = opExpNeg, a.nodes[n.in[0].id].in
		case n.op == loops.Exp && once(n.in[0], loops.Sub) && a.dense(a.nodes[n.in[0].id].in[:1]) && number(a.nodes[n.in[0].id].in[1]):
			n.op, n.in = opExpSub, a.nodes[n.in[0].id].in
		case n.op == loops.Div && n.in[0].scalar && once(n.in[1], loops.Add) && a.dense(a.nodes[n.in[1].id].in[:1]) && a.nodes[n.in[1].id].in[1].scalar:
			n.op, n.in = opIntoAdd, []operand{a.nodes[n.in[1].id].in[0], n.in[0], a.nodes[n.in[1].id].in[1]}
		case n.op == loops.Mul && a.siluSlope(n, once) != nil:
			n.op, n.in = opSiLUSlope, a.siluSlope(n, once)
		case n.op == loops.Mul && a.dense(n.in) && once(n.in[0], loops.Mul) && a.dense(a.nodes[n.in[0].id].in):
			n.op, n.in = opMulMul, append(slices.Clone(a.nodes[n.in[0].id].in), n.in[1])
		case n.op == loops.Mul && a.dense(n.in) && once(n.in[1], loops.Mul) && a.dense(a.nodes[n.in[1].id].in):
			n.op, n.in = opMulMul, append(slices.Clone(a.nodes[n.in[1].id].in), n.in[0])
		}
	}
}

// siluSlope returns x and s if a product is s·(x·(1 − s) + 1), or nil.
func (a *analysis) siluSlope(n *node, once func(x operand, op loops.Op) bool) []operand {
	for i, sum := range n.in {
		s := n.in[1-i]
		if !once(sum, loops.Add) || !a.isOne(a.nodes[sum.id].in[1]) || !once(a.nodes[sum.id].in[0], loops.Mul) {
			continue
		}
		product := a.nodes[a.nodes[sum.id].in[0].id].in
		for j, rest := range product {
			if x := product[1-j]; once(rest, loops.Sub) && a.isOne(a.nodes[rest.id].in[0]) && a.nodes[rest.id].in[1] == s && a.dense([]operand{x, s}) {
				return []operand{x, s}
			}
		}
	}
	return nil
}

func (a *analysis) isOne(x operand) bool {
	return x.scalar && a.scalars.list[x.id].kind == scalarConstant && a.scalars.list[x.id].value == 1
}

// number reports whether an operand is one number for many elements.
func number(x operand) bool { return x.scalar || x.repeat > 1 }

// dense reports whether all operands are nodes with as many elements as the result in every row.
func (a *analysis) dense(in []operand) bool {
	return !slices.ContainsFunc(in, func(x operand) bool { return x.scalar || x.repeat > 1 || a.nodes[x.id].shared })
}

// limits reports whether the bounds of a clamp are constants that [loops.RoundSmall] takes, and whole ones if this is asked.
func (a *analysis) limits(bounds []operand, whole bool) bool {
	return !slices.ContainsFunc(bounds, func(x operand) bool {
		if !x.scalar || a.scalars.list[x.id].kind != scalarConstant {
			return true
		}
		v := float64(a.scalars.list[x.id].value)
		return !(math.Abs(v) <= loops.Small) || whole && v != math.Trunc(v)
	})
}

// place says where the elements of a node are.
type place struct {
	kind   placeKind
	index  int // of an input or output
	offset int // of scratch memory, for one row
	size   int // elements in a row
	table  []float32
}

type placeKind uint8

const (
	nowhere placeKind = iota
	inScratch
	inInput
	inOutput
	inShared // an input that all rows share
	inTable
)

// instruction computes a node for some rows, or stores one.
type instruction struct {
	node
	dst   int
	store bool // of in[0] to the output dst
}

// writer chooses places and writes the code.
type writer struct {
	*analysis
	k        *Kernel
	order    []int
	lastRead []int // position in order
	free     map[int][]int
}

func (w *writer) write() {
	w.sort()
	w.k.values = make([]place, len(w.nodes))
	w.free = map[int][]int{}
	for at, id := range w.order {
		w.define(at, id)
		for o, out := range w.outputs {
			if p := w.k.values[id]; out == id && !(p.kind == inOutput && p.index == o) && !w.nodes[id].writes(o) {
				w.k.code = append(w.k.code, instruction{node: node{in: []operand{{id: id, repeat: 1}}, size: p.size}, dst: o, store: true})
			}
		}
		w.release(at, id)
	}
}

// sort lists the nodes that are needed in the order in which they are computed: inputs right before they are read first.
func (w *writer) sort() {
	uses := w.uses()
	listed := make([]bool, len(w.nodes))
	w.lastRead = make([]int, len(w.nodes))
	list := func(id int) {
		if !listed[id] {
			listed[id] = true
			w.lastRead[id] = len(w.order)
			w.order = append(w.order, id)
		}
	}
	for i, n := range w.nodes {
		if uses[i] == 0 || n.op == opInput && !slices.Contains(w.outputs, i) {
			continue
		}
		for _, x := range n.in {
			if !x.scalar {
				list(x.id)
			}
		}
		list(i)
		for _, x := range n.in {
			if !x.scalar {
				w.lastRead[x.id] = len(w.order) - 1
			}
		}
	}
}

// define chooses the place of a node and writes its instruction.
func (w *writer) define(at, id int) {
	n, p := w.nodes[id], &w.k.values[id]
	p.size = n.size
	direct := n.op == opInput && w.k.inputs[n.input].dtype == program.Float && w.k.inputs[n.input].at == byrow.Float32
	switch {
	case n.op == opTable:
		p.kind, p.table = inTable, n.table
		return
	case n.op == opInput && n.shared:
		p.kind, p.index = inShared, n.input
		return
	case direct:
		p.kind, p.index = inInput, n.input
		return
	}
	elementwise := n.op < opInput || n.op == opClamp || n.op == opSelect || n.op >= opRotate
	if elementwise { // the result may take the place of an operand
		w.releaseOperands(at, n)
	}
	o := slices.IndexFunc(w.outputs, func(out int) bool { return out == id })
	switch {
	case n.op == opQuantize && !w.isRead(at, id):
	case o >= 0 && w.k.outputs[o].dtype == program.Float && w.k.outputs[o].at == byrow.Float32 && !n.writes(o):
		p.kind, p.index = inOutput, o
	default:
		p.kind, p.offset = inScratch, w.scratch(n.size)
	}
	w.k.code = append(w.k.code, instruction{node: n, dst: id})
	if !elementwise {
		w.releaseOperands(at, n)
	}
}

// isRead reports whether a later instruction reads a node, or stores it.
func (w *writer) isRead(at, id int) bool {
	for o, out := range w.outputs {
		if out == id && !w.nodes[id].writes(o) {
			return true
		}
	}
	return w.lastRead[id] > at
}

// Scratch memory is given out in whole cache lines.
func class(size int) int { return (size + 15) &^ 15 }

func (w *writer) scratch(size int) int {
	size = class(size)
	if list := w.free[size]; len(list) > 0 {
		w.free[size] = list[:len(list)-1]
		return list[len(list)-1]
	}
	w.k.scratch += size
	return w.k.scratch - size
}

// releaseOperands frees the memory of operands that nothing reads any more.
func (w *writer) releaseOperands(at int, n node) {
	for i, x := range n.in {
		if !x.scalar && !slices.ContainsFunc(n.in[:i], func(y operand) bool { return !y.scalar && y.id == x.id }) && w.lastRead[x.id] == at {
			w.freePlace(x.id)
		}
	}
}

// release frees a node that is stored and not read.
func (w *writer) release(at, id int) {
	if w.lastRead[id] == at {
		w.freePlace(id)
	}
}

func (w *writer) freePlace(id int) {
	if p := w.k.values[id]; p.kind == inScratch {
		w.free[class(p.size)] = append(w.free[class(p.size)], p.offset)
	}
}
