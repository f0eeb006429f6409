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

// register takes a free register, or one more; its slot is returned.
func (w *phase) register() int {
	if n := len(w.free); n > 0 {
		r := w.free[n-1]
		w.free = w.free[:n-1]
		return r
	}
	w.registers++
	return len(w.a.p.Inputs) + len(w.a.p.Outputs) + w.registers - 1
}

// freeAfter frees the register of an operand that is read for the last time at this
// position, so that the result may take its place.
func (w *phase) freeAfter(at, i int) {
	if w.until[i] <= at && w.slot[i] >= len(w.a.p.Inputs)+len(w.a.p.Outputs) && !slices.Contains(w.free, w.slot[i]) {
		w.free = append(w.free, w.slot[i])
	}
}

// directOutputs lists the outputs that are computed in their own memory and not copied there, by node. That memory may be the one of the
// input of the same name: the input must have been read for the last time before.
func (w *phase) directOutputs() map[int]int {
	position := make([]int, len(w.nodes))
	inputs := map[int]int{} // nodes of inputs
	for at, i := range w.order {
		position[i] = at
		if w.nodes[i].op == opInput {
			inputs[w.nodes[i].input] = i
		}
	}
	direct := map[int]int{}
	for o, i := range w.outputs {
		if i < 0 || slices.Contains([]opcode{opInput, opSelectS, opSelectZ}, w.nodes[i].op) {
			continue
		}
		if _, twice := direct[i]; twice {
			continue
		}
		in, there := inputs[w.a.p.Input(w.a.p.Outputs[o].Name)]
		if !there || w.until[in] <= position[i] {
			direct[i] = o
		}
	}
	return direct
}

// saveInput copies an input that is also returned as an output of another name, if an output of its own name may overwrite its
// memory first.
func (w *phase) saveInput(i int) {
	in := w.nodes[i].input
	name := w.a.p.Inputs[in].Name
	if _, overwritten := w.a.p.Output(name); !overwritten {
		return
	}
	for o, n := range w.outputs {
		if n >= 0 && w.a.p.Outputs[o].Name != name && w.standsFor(n, i) {
			r := w.register()
			w.code = append(w.code, instruction{op: opCopy, dst: r, a: in})
			w.slot[i] = r
			return
		}
	}
}

// standsFor reports whether node n is node i or may, by selections, be in its memory.
func (w *phase) standsFor(n, i int) bool {
	may := make([]bool, n+1)
	may[n] = true
	for j := n; j > i; j-- {
		if op := w.nodes[j].op; may[j] && (op == opSelectS || op == opSelectZ) {
			for _, k := range w.nodes[j].in {
				may[k] = true
			}
		}
	}
	return i <= n && may[i]
}

// writeOutputs copies what was not computed in place.
func (w *phase) writeOutputs(direct map[int]int) {
	for o, i := range w.outputs {
		if at, there := direct[i]; i >= 0 && !(there && at == o) {
			w.code = append(w.code, instruction{op: opCopy, dst: len(w.a.p.Inputs) + o, a: w.slot[i]})
		}
	}
}

// number gives the selections by scalars their slots, which come after the registers. Until then they are negative numbers.
func (w *phase) number(aliases int) {
	end := len(w.a.p.Inputs) + len(w.a.p.Outputs) + w.registers
	for i := range w.code {
		ins := &w.code[i]
		for _, slot := range []*int{&ins.dst, &ins.a, &ins.b, &ins.c} {
			if *slot < 0 {
				*slot = end - 1 - *slot
			}
		}
	}
	w.slots = end + aliases
}
