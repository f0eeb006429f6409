package cpu

import "slices"

// choosePasses assigns each reduction to the pass over the tensors that computes it, and returns
// the number of the last pass, which writes all tensors. Reductions that no element depends on
// belong to the last pass, which reads the tensors in any case.
func (a *analysis) choosePasses() int {
	last := 0
	for _, id := range a.outputs {
		if id >= 0 {
			last = max(last, a.nodes[id].level)
		}
	}
	for _, d := range a.reductions {
		last = max(last, a.nodes[d.node].level)
	}
	needed := make([]bool, len(a.scalars.list)) // whether elements of tensors depend on the scalar
	for _, n := range a.nodes {
		for _, x := range n.in {
			if x.scalar {
				needed[x.id] = true
			}
		}
	}
	for i, v := range slices.Backward(a.scalars.list) {
		if needed[i] && v.kind == scalarOp {
			for _, x := range v.args {
				needed[x] = true
			}
		}
	}
	for i := range a.reductions {
		d := &a.reductions[i]
		d.phase = last
		if needed[d.scalar] {
			d.phase = a.nodes[d.node].level
		}
		a.scalars.list[d.scalar].level = d.phase + 1
	}
	for i := range a.scalars.list { // in topological order
		v := &a.scalars.list[i]
		if v.kind == scalarOp {
			v.level = 0
			for _, x := range v.args {
				v.level = max(v.level, a.scalars.list[x].level)
			}
		}
	}
	return last
}

// pass returns the analysis of one pass, with its reductions appended as nodes. Only the last pass
// writes tensors.
func (a *analysis) pass(number int, last bool) *analysis {
	one := *a
	one.nodes, one.outputs = slices.Clone(a.nodes), slices.Clone(a.outputs)
	if !last {
		for o := range one.outputs {
			one.outputs[o] = -1
		}
	}
	for i, d := range a.reductions {
		if d.phase == number {
			one.nodes = append(one.nodes, node{op: opReduce, fold: d.fold, group: i,
				in: []operand{{id: d.node, repeat: 1}}})
		}
	}
	return &one
}
