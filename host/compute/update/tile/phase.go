package tile

import (
	"slices"

	"github.com/cage-qat/cage/host/compute/loops"
)

// instruction is an operation on the slots of one tile.
type instruction struct {
	op           opcode
	dst, a, b, c int
	s, t         int // scalars; of a reduction, s is its number, and of a rotation, t its block
}

// The slots of a tile are the program's inputs, its outputs, the registers, and last the
// aliases: the results of selections by a scalar, each of which is the memory of one operand.

// phase is the code of one pass over the tensors, under construction.
type phase struct {
	a       *analysis
	outputs []int // node of each output, -1 for those that the phase does not write
	// nodes are those of the analysis, fused, and after them the reductions of the phase.
	nodes    []node
	uses     []int // of each node
	order    []int // the nodes that are computed
	lastRead []int // position in order at which each node is read last

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

// count counts the uses of each node: 0 for nodes that are not needed.
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

// sort lists the nodes that are computed. Each reduction comes right after its operands,
// whose memory may be overwritten later.
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
	w.numberAliases(aliases)
}

// afterAll is larger than every position: outputs are read after the last instruction.
const afterAll = 1 << 30

// lifetimes finds the position at which each node is read last. The operands of a
// selection by a scalar live as long as its result, which is an alias of one of them.
func (w *phase) lifetimes() {
	w.lastRead = slices.Repeat([]int{-1}, len(w.nodes))
	for _, i := range w.outputs {
		if i >= 0 {
			w.lastRead[i] = afterAll
		}
	}
	for at := len(w.order) - 1; at >= 0; at-- {
		i := w.order[at]
		for _, j := range w.nodes[i].in {
			w.lastRead[j] = max(w.lastRead[j], at)
			if w.nodes[i].op == opSelectS || w.nodes[i].op == opSelectZ {
				w.lastRead[j] = max(w.lastRead[j], w.lastRead[i])
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
	case n.op == opSelectZ: // c is the register that is filled if the scalar is selected
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

// register returns the slot of a free register, or of a new one.
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
// position, so that the result may have it.
func (w *phase) freeAfter(at, i int) {
	if w.lastRead[i] <= at && w.slot[i] >= len(w.a.p.Inputs)+len(w.a.p.Outputs) && !slices.Contains(w.free, w.slot[i]) {
		w.free = append(w.free, w.slot[i])
	}
}

// directOutputs returns, by node, the outputs that are computed directly in their own memory. It may be the memory of the input
// with the same name, so that the input must not be read afterwards.
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
		if !there || w.lastRead[in] <= position[i] {
			direct[i] = o
		}
	}
	return direct
}

// saveInput copies an input that is also returned as an output with another name, if an output with the input's name may
// overwrite its memory before.
func (w *phase) saveInput(i int) {
	in := w.nodes[i].input
	name := w.a.p.Inputs[in].Name
	if _, overwritten := w.a.p.Output(name); !overwritten {
		return
	}
	for o, n := range w.outputs {
		if n >= 0 && w.a.p.Outputs[o].Name != name && w.mayAlias(n, i) {
			r := w.register()
			w.code = append(w.code, instruction{op: opCopy, dst: r, a: in})
			w.slot[i] = r
			return
		}
	}
}

// mayAlias reports whether node n is node i or, by selections, may share its memory.
func (w *phase) mayAlias(n, i int) bool {
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

// writeOutputs copies the outputs that are not computed directly in their memory.
func (w *phase) writeOutputs(direct map[int]int) {
	for o, i := range w.outputs {
		if at, there := direct[i]; i >= 0 && !(there && at == o) {
			w.code = append(w.code, instruction{op: opCopy, dst: len(w.a.p.Inputs) + o, a: w.slot[i]})
		}
	}
}

// numberAliases replaces the negative slots of aliases: they come after the registers, whose number is known only now.
func (w *phase) numberAliases(aliases int) {
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

// fuse replaces several operations by one if their intermediate results have no other
// uses, which saves passes over the cache. Every step rounds as before.
func (w *phase) fuse() {
	for i := range w.nodes {
		if w.uses[i] == 0 {
			continue
		}
		n := &w.nodes[i]
		switch n.op {
		case opMulS:
			w.fuseProduct(n)
		case loops.Add, loops.Sub:
			w.fuseSum(n)
		case opAddS:
			w.fuseRoot(n)
		case opSum:
			w.fuseNorm(n)
		}
	}
}

// usedOnce reports whether node i is the operation op and has one use.
func (w *phase) usedOnce(i int, op opcode) bool { return w.nodes[i].op == op && w.uses[i] == 1 }

// fuseProduct: (a·b)·s.
func (w *phase) fuseProduct(n *node) {
	if x := n.in[0]; w.usedOnce(x, loops.Mul) {
		*n = node{op: opMulMulS, in: w.nodes[x].in, s: n.s, level: n.level}
	}
}

// fuseSum: a·s ± b·t and a·s + (b·c)·t.
func (w *phase) fuseSum(n *node) {
	x, y := n.in[0], n.in[1]
	if x == y {
		return
	}
	if n.op == loops.Add && w.usedOnce(x, opMulMulS) && !w.usedOnce(y, opMulMulS) {
		x, y = y, x
	}
	if n.op == loops.Add && w.usedOnce(y, opMulMulS) {
		a, s := w.scaledOperand(x)
		p := w.nodes[y]
		*n = node{op: opLinMul, in: []int{a, p.in[0], p.in[1]}, s: []int{s, p.s[0]}, level: n.level}
		return
	}
	if !w.usedOnce(x, opMulS) && !w.usedOnce(y, opMulS) {
		return
	}
	a, s := w.scaledOperand(x)
	b, t := w.scaledOperand(y)
	op := opLinAdd
	if n.op == loops.Sub {
		op = opLinSub
	}
	*n = node{op: op, in: []int{a, b}, s: []int{s, t}, level: n.level}
}

// scaledOperand returns node i as a tensor times a scalar. The scalar is 1 if the node is no such
// product; a product with 1 is exact.
func (w *phase) scaledOperand(i int) (tensor, scalar int) {
	if w.usedOnce(i, opMulS) {
		return w.nodes[i].in[0], w.nodes[i].s[0]
	}
	return i, w.a.scalars.constant(1)
}

// fuseRoot: √a·s + t.
func (w *phase) fuseRoot(n *node) {
	x := n.in[0]
	if !w.usedOnce(x, opMulS) {
		return
	}
	if root := w.nodes[x].in[0]; w.usedOnce(root, loops.Sqrt) {
		*n = node{op: opSqrtLin, in: w.nodes[root].in, s: []int{w.nodes[x].s[0], n.s[0]}, level: n.level}
	}
}

// fuseNorm: Σ a·b and Σ (a − b)².
func (w *phase) fuseNorm(n *node) {
	x := n.in[0]
	if !w.usedOnce(x, loops.Mul) {
		return
	}
	n.op, n.in = opSumMul, w.nodes[x].in
	if e := n.in[0]; e == n.in[1] && w.nodes[e].op == loops.Sub && w.uses[e] == 2 {
		n.op, n.in = opSumDiff, w.nodes[e].in
	}
}
