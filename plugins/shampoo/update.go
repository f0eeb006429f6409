package main

import (
	"maps"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// Update writes the program for one step. The bias correction of m is applied to scalars by which m
// is multiplied anyway, which saves a pass over m.
func (shampoo) Update(b *program.Builder, in sdk.UpdateInput,
	t sdk.Tensor) (program.Value, sdk.State, error) {
	m, next := in.Gradient, maps.Clone(in.State)
	if beta1 := t.Float("beta1"); beta1 > 0 {
		m = average(in.State[stateM], in.Gradient, beta1)
		next[stateM] = m
	}
	c1 := sdk.BiasCorrection(in.Step, t.Float("beta1"))
	if !t.Bool("graft") {
		scale := func(region, program.Value) program.Value { return b.Const(1).Div(c1) }
		return precondition(m, in.State, t, scale), next, nil
	}
	v := average(in.State[stateV], in.Gradient.Square(), t.Float("graft_beta2"))
	next[stateV] = v
	// (m/c1)/(√(v/c2) + ε'), rewritten so that only one division runs over the tensor.
	ratio := c1.Div(sdk.BiasCorrection(in.Step, t.Float("graft_beta2")).Sqrt())
	adam := m.Div(v.Sqrt().Mul(ratio).Add(c1.Scale(t.Float("graft_eps"))))
	u := precondition(m, in.State, t, func(r region, p program.Value) program.Value {
		// ‖A‖/(‖p/c1‖ + 1e-16)/c1
		return norm(r.take(adam)).Div(norm(p).Add(c1.Scale(1e-16)))
	})
	if first := start(t); first > 1 {
		u = in.Step.Lt(b.Const(float64(first))).Select(adam, u)
	}
	return u, next, nil
}

// precondition multiplies each block of m by its inverse roots, one per axis, and the product p by
// scale(r, p), which is a scalar or one number per block.
func precondition(m program.Value, state sdk.State, t sdk.Tensor,
	scale func(region, program.Value) program.Value) program.Value {
	list := regions(t)
	stacks := make([]program.Value, len(list))
	for i, r := range list {
		p := state[factor{r, 0}.name(stateRoot)].Dot(r.take(m), [2][]int{{2}, {1}}, eachBlock)
		if len(r) == 2 {
			p = p.Dot(state[factor{r, 1}.name(stateRoot)], [2][]int{{2}, {2}}, eachBlock)
		}
		stacks[i] = p.Mul(scale(r, p))
	}
	return assemble(list, stacks)
}

// norm returns the Frobenius norm of each stacked block, in a shape that broadcasts to the blocks.
// Rows are summed first: in binary32, a single running sum over many squares would lose small
// terms.
func norm(p program.Value) program.Value {
	p = p.Square()
	shape := p.Shape()
	for axis := len(shape) - 1; axis > 0; axis-- {
		p = p.ReduceSum(axis)
		shape[axis] = 1
	}
	return p.Reshape(shape...).Sqrt()
}

// average returns β·old + (1−β)·new, or the sum of both if β = 1.
func average(old, new program.Value, beta float64) program.Value {
	if beta == 1 {
		return old.Add(new)
	}
	return old.Scale(beta).Add(new.Scale(1 - beta))
}

// inverseRoot returns (A + εI)^(−power) for each symmetric matrix A with eigenvalues w[n,d] and
// eigenvectors q[n,d,d]. If rounding errors make an eigenvalue of A + εI smaller than ε, all are
// shifted so that the smallest is ε. If A or its root is not finite, the previous root is kept.
func inverseRoot(w, q, previous program.Value, power, eps float64) program.Value {
	b := w.Builder()
	shape := q.Shape()
	if len(shape) != 3 { // the builder has recorded a mistake
		return q
	}
	lowest := w.ReduceMin(1).Reshape(shape[0], 1)
	w = w.Sub(lowest.Min(b.Const(0))).Shift(eps).Pow(b.Const(-power / 2))
	// If A is not finite, neither are its eigenvalues, which are fewer to check.
	finite := w.Square().IsFinite().Convert(program.Float).ReduceMin(1).Reshape(shape[0], 1, 1)
	half := q.Mul(w.Reshape(shape[0], 1, shape[2]))
	root := half.Dot(half, [2][]int{{2}, {2}}, eachBlock)
	return finite.Gt(b.Const(0)).Select(root, previous)
}

// identity returns an identity matrix for each block: shape is [n,d,d].
func identity(b *program.Builder, shape []int) program.Value {
	index := program.Type{DType: program.Int, Shape: shape}
	return b.Iota(index, 1).Eq(b.Iota(index, 2)).Convert(program.Float)
}
