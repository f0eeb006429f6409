package tile

import "slices"

// instruction is an operation on the slots of one tile.
type instruction struct {
	op           opcode
	dst, a, b, c int
	s, t         int // scalars; of a reduction, s is its number, and of a rotation, t its block
}

// Slots of a tile are the program's inputs, its outputs, the registers, and last the
// results of selections by a scalar, which stand for one of the operands.

// phase is a pass over the tensors under construction.
type phase struct {
	a       *analysis
	outputs []int // node of each output, -1 for those that the phase does not write
	// nodes are copies of those of the analysis, fused, and after them the reductions
	// of the phase; order lists those that are computed.
	nodes []node
	uses  []int
	order []int
	until []int // position in the order at which a node is read last

	code             []instruction
	slot             []int // of each node
	free             []int // registers
	registers, slots int
}

// writePhase compiles one pass.
func (a *analysis) writePhase(number int, last bool) *phase {
	w := &phase{a: a, outputs: slices.Repeat([]int{-1}, len(a.outputs)), nodes: slices.Clone(a.nodes)}
	if last {
		for i, o := range a.outputs {
			w.outputs[i] = o.tensor
		}
	}
	for i, d := range a.reductions {
		if d.phase == number {
			w.nodes = append(w.nodes, node{op: d.op, in: []int{d.node}, s: []int{i}})
		}
	}
	w.count()
	w.fuse()
	w.count()
	w.sort()
	w.emit()
	return w
}

// count counts how often each node is used; nodes that are not needed have 0.
func (w *phase) count() {
	w.uses = make([]int, len(w.nodes))
	for i := len(w.a.nodes); i < len(w.nodes); i++ {
		w.uses[i]++
	}
	for _, i := range w.outputs {
		if i >= 0 {
			w.uses[i]++
		}
	}
	for i := len(w.nodes) - 1; i >= 0; i-- {
		if w.uses[i] == 0 {
			continue
		}
		for _, j := range w.nodes[i].in {
			w.uses[j]++
		}
	}
}

// sort lists what is computed: each reduction comes right after its operands, as they
// may be overwritten later.
func (w *phase) sort() {
	after := map[int][]int{}
	for i := len(w.a.nodes); i < len(w.nodes); i++ {
		at := slices.Max(w.nodes[i].in)
		after[at] = append(after[at], i)
	}
	for i := range w.a.nodes {
		if w.uses[i] > 0 {
			w.order = append(append(w.order, i), after[i]...)
		}
	}
}

// emit writes the code.
func (w *phase) emit() {
	w.slot = make([]int, len(w.nodes))
	w.lifetimes()
	direct := w.directOutputs()
	aliases := 0
	for at, i := range w.order {
		if n := &w.nodes[i]; n.op == opInput {
			w.slot[i] = n.input
			w.saveInput(i)
		} else {
			w.operation(at, i, direct, &aliases)
		}
	}
	w.writeOutputs(direct)
	w.number(aliases)
}

// never is after every position.
const never = 1 << 30

// lifetimes finds when each node is read last. What a selection by a scalar stands for
// lives as long as the selection.
func (w *phase) lifetimes() {
	w.until = slices.Repeat([]int{-1}, len(w.nodes))
	for _, i := range w.outputs {
		if i >= 0 {
			w.until[i] = never
		}
	}
	for at := len(w.order) - 1; at >= 0; at-- {
		i := w.order[at]
		for _, j := range w.nodes[i].in {
			w.until[j] = max(w.until[j], at)
			if w.nodes[i].op == opSelectS || w.nodes[i].op == opSelectZ {
				w.until[j] = max(w.until[j], w.until[i])
			}
		}
	}
}

// operation writes the instruction of node i.
func (w *phase) operation(at, i int, direct map[int]int, aliases *int) {
	n := &w.nodes[i]
	ins := instruction{op: n.op}
	operands := []*int{&ins.a, &ins.b, &ins.c}
	for j, in := range n.in {
		*operands[j] = w.slot[in]
		w.freeAfter(at, in)
	}
	places := []*int{&ins.s, &ins.t}
	for j, s := range n.s {
		*places[j] = s
	}
	if n.op == opRotate {
		ins.t = n.block
	}
	switch o, ok := direct[i]; {
	case n.op >= opSum: // writes no slot
	case n.op == opSelectS:
		*aliases++
		w.slot[i] = -*aliases
	case n.op == opSelectZ: // c is the register that may be filled
		*aliases++
		ins.c = w.register()
		w.slot[i] = -*aliases
	case ok:
		w.slot[i] = len(w.a.p.Inputs) + o
	default:
		w.slot[i] = w.register()
	}
	ins.dst = w.slot[i]
	w.code = append(w.code, ins)
}
