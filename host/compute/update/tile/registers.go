package tile

import "slices"

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
