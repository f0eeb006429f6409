package tile

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
		case opAdd, opSub:
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
	if x := n.in[0]; w.usedOnce(x, opMul) {
		*n = node{op: opMulMulS, in: w.nodes[x].in, s: n.s, level: n.level}
	}
}

// fuseSum: a·s ± b·t and a·s + (b·c)·t.
func (w *phase) fuseSum(n *node) {
	x, y := n.in[0], n.in[1]
	if x == y {
		return
	}
	if n.op == opAdd && w.usedOnce(x, opMulMulS) && !w.usedOnce(y, opMulMulS) {
		x, y = y, x
	}
	if n.op == opAdd && w.usedOnce(y, opMulMulS) {
		a, s := w.scaled(x)
		p := w.nodes[y]
		*n = node{op: opLinMul, in: []int{a, p.in[0], p.in[1]}, s: []int{s, p.s[0]}, level: n.level}
		return
	}
	if !w.usedOnce(x, opMulS) && !w.usedOnce(y, opMulS) {
		return
	}
	a, s := w.scaled(x)
	b, t := w.scaled(y)
	op := opLinAdd
	if n.op == opSub {
		op = opLinSub
	}
	*n = node{op: op, in: []int{a, b}, s: []int{s, t}, level: n.level}
}

// scaled returns node i as a tensor times a scalar. The scalar is 1 if the node is no such
// product; a product with 1 is exact.
func (w *phase) scaled(i int) (tensor, scalar int) {
	if w.usedOnce(i, opMulS) {
		return w.nodes[i].in[0], w.nodes[i].s[0]
	}
	return i, w.a.scalars.one()
}

// fuseRoot: √a·s + t.
func (w *phase) fuseRoot(n *node) {
	x := n.in[0]
	if !w.usedOnce(x, opMulS) {
		return
	}
	if root := w.nodes[x].in[0]; w.usedOnce(root, opSqrt) {
		*n = node{op: opSqrtLin, in: w.nodes[root].in, s: []int{w.nodes[x].s[0], n.s[0]}, level: n.level}
	}
}

// fuseNorm: Σ a·b and Σ (a − b)².
func (w *phase) fuseNorm(n *node) {
	x := n.in[0]
	if !w.usedOnce(x, opMul) {
		return
	}
	n.op, n.in = opSumMul, w.nodes[x].in
	if e := n.in[0]; e == n.in[1] && w.nodes[e].op == opSub && w.uses[e] == 2 {
		n.op, n.in = opSumDiff, w.nodes[e].in
	}
}
