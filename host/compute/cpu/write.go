package cpu

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/sdk/program"
)

// uses counts the reads of each node; unneeded nodes have none.
func (a *analysis) uses() []int {
	uses := make([]int, len(a.nodes))
	for _, id := range a.outputs {
		if id >= 0 {
			uses[id]++
		}
	}
	for i := len(a.nodes) - 1; i >= 0; i-- {
		if a.nodes[i].op >= opReduce {
			uses[i]++
		}
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

// fuse replaces operations by fused ones with the same results, which take fewer passes. Nodes are
// in topological order.
func (a *analysis) fuse() {
	uses := a.uses()
	of := func(x operand) []operand { return a.nodes[x.id].in }
	once := func(x operand, op loops.Op) bool {
		return !x.scalar && x.repeat == 1 && a.nodes[x.id].op == op && uses[x.id] == 1
	}
	onceDense := func(x operand, op loops.Op) bool { return once(x, op) && a.dense(of(x)) }
	for i := range a.nodes {
		n := &a.nodes[i]
		if uses[i] == 0 || len(n.in) == 0 {
			continue
		}
		x, y := n.in[0], n.in[len(n.in)-1]
		switch {
		case n.op == opFold && n.fold == loops.Add && onceDense(x, loops.Mul):
			n.op, n.in = opSumMul, of(x)
		case n.op == opFold && n.fold == loops.Max && onceDense(x, loops.Abs):
			n.op, n.in = opLargest, of(x)
		case n.op == opClamp && once(x, loops.Round) && a.limits(n.in[1:], true):
			// Rounding an integer does not change it.
			round := &a.nodes[x.id]
			round.op, round.in = opClamp, append(slices.Clone(round.in), n.in[1:]...)
			n.op, n.in = opRoundSmall, n.in[:1]
		case n.op == loops.Round && !x.scalar && a.nodes[x.id].op == opClamp &&
			a.limits(of(x)[1:], false):
			n.op = opRoundSmall
		case n.op == loops.Mul && once(x, opRoundSmall) && number(y):
			n.op, n.in = opRoundMul, []operand{of(x)[0], y}
		case n.op == loops.Mul && once(y, opRoundSmall) && number(x):
			n.op, n.in = opRoundMul, []operand{of(y)[0], x}
		case n.op == loops.Le && once(x, loops.Abs) && number(y) && onceDense(of(x)[0], loops.Sub):
			n.op, n.in = opNear, append(slices.Clone(of(of(x)[0])), y)
		case n.op == loops.Exp && onceDense(x, loops.Neg):
			n.op, n.in = opExpNeg, of(x)
		case n.op == loops.Exp && once(x, loops.Sub) && a.dense(of(x)[:1]) && number(of(x)[1]):
			n.op, n.in = opExpSub, of(x)
		case n.op == loops.Div && x.scalar && once(y, loops.Add) && a.dense(of(y)[:1]) && of(y)[1].scalar:
			n.op, n.in = opIntoAdd, []operand{of(y)[0], x, of(y)[1]}
		case n.op == loops.Mul && a.siluSlope(n, once) != nil:
			n.op, n.in = opSiLUSlope, a.siluSlope(n, once)
		case n.op == loops.Mul && a.dense(n.in) && onceDense(x, loops.Mul):
			n.op, n.in = opMulMul, append(slices.Clone(of(x)), y)
		case n.op == loops.Mul && a.dense(n.in) && onceDense(y, loops.Mul):
			n.op, n.in = opMulMul, append(slices.Clone(of(y)), x)
		case n.op == opReduce && n.fold == loops.Add && onceDense(x, loops.Mul):
			n.op, n.in = opReduceMul, of(x)
		default:
			a.fuseLinear(n, once)
		}
	}
}

// fuseLinear fuses products with scalars and their sums, which are common in optimizer updates.
func (a *analysis) fuseLinear(n *node, once func(x operand, op loops.Op) bool) {
	scaled := func(x operand) bool { // x = y·s
		return once(x, loops.Mul) && a.nodes[x.id].in[1].scalar && a.dense(a.nodes[x.id].in[:1])
	}
	parts := func(x operand) (tensor, factor operand) {
		if scaled(x) {
			return a.nodes[x.id].in[0], a.nodes[x.id].in[1]
		}
		return x, operand{scalar: true, id: a.scalars.constant(1)}
	}
	switch {
	case n.op == loops.Mul && n.in[1].scalar && once(n.in[0], loops.Mul) &&
		a.dense(a.nodes[n.in[0].id].in):
		n.op, n.in = opMulMulS, append(slices.Clone(a.nodes[n.in[0].id].in), n.in[1])
	case n.op == loops.Add && n.in[1].scalar && once(n.in[0], loops.Mul):
		if root := a.nodes[n.in[0].id].in; root[1].scalar && once(root[0], loops.Sqrt) &&
			a.dense(a.nodes[root[0].id].in) {
			n.op, n.in = opSqrtLin, []operand{a.nodes[root[0].id].in[0], root[1], n.in[1]}
		}
	case (n.op == loops.Add || n.op == loops.Sub) && a.dense(n.in) && n.in[0] != n.in[1]:
		x, y := n.in[0], n.in[1]
		if n.op == loops.Add && once(x, opMulMulS) && !once(y, opMulMulS) {
			x, y = y, x
		}
		first, s := parts(x)
		if n.op == loops.Add && once(y, opMulMulS) {
			n.op, n.in = opLinMul, append([]operand{first, s}, a.nodes[y.id].in...)
			return
		}
		if !scaled(x) && !scaled(y) {
			return
		}
		second, t := parts(y)
		n.op = map[loops.Op]loops.Op{loops.Add: opLinAdd, loops.Sub: opLinSub}[n.op]
		n.in = []operand{first, s, second, t}
	}
}

// siluSlope returns x and s if n is the product s·(x·(1 − s) + 1), else nil.
func (a *analysis) siluSlope(n *node, once func(x operand, op loops.Op) bool) []operand {
	for i, sum := range n.in {
		s := n.in[1-i]
		if !once(sum, loops.Add) || !a.isOne(a.nodes[sum.id].in[1]) ||
			!once(a.nodes[sum.id].in[0], loops.Mul) {
			continue
		}
		product := a.nodes[a.nodes[sum.id].in[0].id].in
		for j, rest := range product {
			if x := product[1-j]; once(rest, loops.Sub) && a.isOne(a.nodes[rest.id].in[0]) &&
				a.nodes[rest.id].in[1] == s && a.dense([]operand{x, s}) {
				return []operand{x, s}
			}
		}
	}
	return nil
}

func (a *analysis) isOne(x operand) bool {
	return x.scalar && a.scalars.list[x.id].kind == scalarConstant && a.scalars.list[x.id].value == 1
}

// number reports whether an operand has one number for several elements of the result.
func number(x operand) bool { return x.scalar || x.repeat > 1 }

// dense reports whether every operand is a node with as many elements in a row as the result has.
func (a *analysis) dense(in []operand) bool {
	return !slices.ContainsFunc(in, func(x operand) bool {
		return x.scalar || x.repeat > 1 || a.nodes[x.id].shared
	})
}

// limits reports whether the bounds of a clamp are constants in the range of [loops.RoundSmall]
// and, if whole is set, integers.
func (a *analysis) limits(bounds []operand, whole bool) bool {
	return !slices.ContainsFunc(bounds, func(x operand) bool {
		if !x.scalar || a.scalars.list[x.id].kind != scalarConstant {
			return true
		}
		v := float64(a.scalars.list[x.id].value)
		return !(math.Abs(v) <= loops.Small) || whole && v != math.Trunc(v)
	})
}

type location struct {
	kind   locationKind
	index  int // of an input or output
	offset int // of scratch memory, for one row
	size   int // elements in a row
	table  []float32
}

type locationKind uint8

const (
	nowhere locationKind = iota
	inScratch
	inInput
	inOutput
	inShared // an input that all rows share
	inTable
)

// An instruction computes or stores some rows of a node.
type instruction struct {
	node
	dst   int
	store bool // of in[0] to the output dst
}

// writer allocates memory and writes the code of a sweep.
type writer struct {
	*analysis
	sweep
	inputs   []port
	outs     []port
	order    []int
	lastRead []int // position in order
	// saved marks the inputs that are also an output under another name. They are copied before the
	// output of their own name overwrites them.
	saved   []bool
	freed   []bool
	scratch int
	free    map[int][]int
}

// afterAll is the lastRead of values that are stored after all other instructions.
const afterAll = 1 << 30

func (pass *Pass) write(a *analysis) sweep {
	a.fuse()
	w := &writer{analysis: a, inputs: pass.inputs, outs: pass.outputs, free: map[int][]int{}}
	w.sort()
	w.values = make([]location, len(w.nodes))
	w.freed = make([]bool, len(w.nodes))
	w.findLastReads()
	w.saved = make([]bool, len(w.p.Inputs))
	for i, in := range w.p.Inputs {
		if _, overwritten := w.p.Output(in.Name); !overwritten {
			continue
		}
		for o, id := range w.outputs {
			if w.p.Outputs[o].Name != in.Name && id >= 0 && w.isInput(id, i) {
				w.saved[i] = true
			}
		}
	}
	var late []instruction
	for at, id := range w.order {
		direct, stores, deferred := w.destinations(at, id)
		w.define(at, id, direct)
		w.code = append(w.code, stores...)
		late = append(late, deferred...)
		if w.lastRead[id] == at {
			w.freeLocation(id)
		}
	}
	w.code = append(w.code, late...)
	pass.scratch = max(pass.scratch, w.scratch)
	return w.sweep
}

// sort lists the needed nodes in the order of computation: inputs right before their first use, and
// reductions right after their operands.
func (w *writer) sort() {
	uses := w.uses()
	reductions := map[int][]int{}
	for i, n := range w.nodes {
		if n.op >= opReduce {
			at := n.in[0].id
			for _, x := range n.in {
				at = max(at, x.id)
			}
			reductions[at] = append(reductions[at], i)
		}
	}
	listed := make([]bool, len(w.nodes))
	var list func(id int)
	list = func(id int) {
		if listed[id] {
			return
		}
		listed[id] = true
		for _, x := range w.nodes[id].in {
			if !x.scalar {
				list(x.id)
			}
		}
		w.order = append(w.order, id)
		for _, d := range reductions[id] {
			list(d)
		}
	}
	for i, n := range w.nodes {
		if uses[i] > 0 && (n.op != opInput || slices.Contains(w.outputs, i)) {
			list(i)
		}
	}
}

// findLastReads computes the live range of each value.
func (w *writer) findLastReads() {
	w.lastRead = slices.Repeat([]int{-1}, len(w.nodes))
	for _, id := range w.outputs {
		if id >= 0 && w.nodes[id].op == opInput {
			w.lastRead[id] = afterAll
		}
	}
	for at, id := range slices.Backward(w.order) {
		w.lastRead[id] = max(w.lastRead[id], at)
		for _, x := range w.nodes[id].in {
			if !x.scalar {
				w.lastRead[x.id] = max(w.lastRead[x.id], at)
			}
		}
	}
}

func (w *writer) isInput(id, input int) bool {
	return w.nodes[id].op == opInput && w.nodes[id].input == input
}

// destinations returns how the outputs that equal a node are written: output direct (−1 if none) by
// the node's instruction, others by store instructions right after it, or by deferred ones at the
// end if the input of the same name, which may share the memory, is read later.
func (w *writer) destinations(at, id int) (direct int, stores, deferred []instruction) {
	direct = -1
	n := w.nodes[id]
	for o, out := range w.outputs {
		if out != id {
			continue
		}
		store := instruction{node: node{in: []operand{{id: id, repeat: 1}}, size: n.size}, dst: o,
			store: true}
		plain := w.outs[o].t.DType == program.Float && w.outs[o].at == passes.Float32
		switch {
		case n.op == opInput || w.overwrites(o, at, n):
			w.lastRead[id] = afterAll
			deferred = append(deferred, store)
		case plain && direct < 0:
			direct = o
		default:
			w.lastRead[id] = max(w.lastRead[id], at)
			stores = append(stores, store)
		}
	}
	return direct, stores, deferred
}

// overwrites reports whether an output written at position at might overwrite an input that is read
// later, or that its own instruction reads in another order.
func (w *writer) overwrites(output, at int, n node) bool {
	i := w.p.Input(w.p.Outputs[output].Name)
	if i < 0 {
		return false
	}
	if !inPlace(n.op) {
		at--
	}
	return slices.ContainsFunc(w.order, func(id int) bool {
		return w.isInput(id, i) && w.lastRead[id] > at
	})
}

// define allocates memory for a node and writes its instruction. direct is the output that the
// instruction writes directly, or −1.
func (w *writer) define(at, id, direct int) {
	n, p := w.nodes[id], &w.values[id]
	p.size = n.size
	switch {
	case n.op == opTable:
		p.kind, p.table = inTable, n.table
		return
	case n.op == opInput && n.shared:
		p.kind, p.index = inShared, n.input
		return
	case n.op == opInput && w.inputs[n.input].t.DType == program.Float &&
		w.inputs[n.input].at == passes.Float32 && !w.saved[n.input]:
		p.kind, p.index = inInput, n.input
		return
	}
	if inPlace(n.op) { // the result may reuse the memory of an operand
		w.releaseOperands(at, n)
	}
	switch {
	case n.op >= opReduce:
	case direct >= 0:
		p.kind, p.index = inOutput, direct
	default:
		p.kind, p.offset = inScratch, w.reserve(n.size)
	}
	w.code = append(w.code, instruction{node: n, dst: id})
	if !inPlace(n.op) {
		w.releaseOperands(at, n)
	}
}

// inPlace reports whether an operation may overwrite an operand with its result.
func inPlace(op loops.Op) bool {
	return op < opInput || op == opClamp || op == opSelect ||
		op >= opRotate && op < opReduce
}

// line is the number of floats in a cache line.
const line = 16

// class rounds the size of a value up to a multiple of a cache line; smaller sizes are unchanged.
func class(size int) int {
	if size < line {
		return size
	}
	return (size + line - 1) &^ (line - 1)
}

func (w *writer) reserve(size int) int {
	size = class(size)
	if list := w.free[size]; len(list) > 0 {
		w.free[size] = list[:len(list)-1]
		return list[len(list)-1]
	}
	w.scratch += size
	return w.scratch - size
}

// releaseOperands frees the memory of the operands that are not read any more.
func (w *writer) releaseOperands(at int, n node) {
	for _, x := range n.in {
		if !x.scalar && w.lastRead[x.id] == at {
			w.freeLocation(x.id)
		}
	}
}

func (w *writer) freeLocation(id int) {
	if w.freed[id] {
		return
	}
	w.freed[id] = true
	p := w.values[id]
	if p.kind == inScratch {
		w.free[class(p.size)] = append(w.free[class(p.size)], p.offset)
	}
}
