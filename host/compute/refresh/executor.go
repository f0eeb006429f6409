package refresh

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/cage-qat/cage/internal/linalg"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// Execute runs p, which must be valid, on inputs by name, and returns its outputs by
// name. Outputs may share memory with inputs and with each other. The error names an
// input that is missing or has the wrong type, or a factorization that did not converge.
func Execute(p *program.Program, inputs map[string]reference.Tensor) (map[string]reference.Tensor, error) {
	e := &execution{p: p, memory: memories.Get().(*memory), values: make([]reference.Tensor, p.NumValues())}
	defer func() {
		clear(e.inUse) // what is in use belongs to the outputs
		memories.Put(e.memory)
	}()
	for i, in := range p.Inputs {
		x, ok := inputs[in.Name]
		if !ok || !x.Type.Equal(in.Type) {
			return nil, fmt.Errorf("program %q: input %q must be %s, got %s", p.Name, in.Name, in.Type, x.Type)
		}
		e.values[i] = x
	}
	last := lastUses(p)
	for i := range p.Nodes {
		n, id := &p.Nodes[i], program.ID(len(p.Inputs)+i)
		if err := e.node(n, id); err != nil {
			return nil, fmt.Errorf("program %q: %%%d = %s: %w", p.Name, id, n.Op, err)
		}
		for _, a := range n.Args {
			if last[a] == i {
				x := e.values[a]
				e.values[a] = reference.Tensor{}
				e.release(x, e.values)
			}
		}
	}
	outputs := make(map[string]reference.Tensor, len(p.Outputs))
	for _, o := range p.Outputs {
		outputs[o.Name] = e.values[o.Value]
	}
	return outputs, nil
}

// execution holds the values of a program while it runs.
type execution struct {
	*memory
	p      *program.Program
	values []reference.Tensor
}

// lastUses returns, for each value, the index of the last node that reads it, and the number
// of nodes for an output.
func lastUses(p *program.Program) []int {
	last := make([]int, p.NumValues())
	for i := range p.Nodes {
		for _, a := range p.Nodes[i].Args {
			last[a] = i
		}
	}
	for _, o := range p.Outputs {
		last[o.Value] = len(p.Nodes)
	}
	return last
}

// node executes the node that defines id.
func (e *execution) node(n *program.Node, id program.ID) (err error) {
	args := make([]reference.Tensor, len(n.Args))
	for i, a := range n.Args {
		args[i] = e.values[a]
	}
	out := &e.values[id]
	floats := n.Type.DType == program.Float
	switch op := n.Op; {
	case floats && (op == program.OpAdd || op == program.OpSub || op == program.OpMul || op == program.OpDiv):
		*out = e.arithmetic(n, args[0], args[1])
	case op == program.OpSelect && floats && selectsRows(n, args):
		*out = e.selectRows(args[0], args[1], args[2])
	case op == program.OpTranspose && floats:
		*out = e.transpose(args[0], n.Attr.Axes)
	case op == program.OpDot:
		*out = e.dot(n, args[0], args[1])
	case op == program.OpSortColumns:
		*out = e.sortColumns(args[0], args[1])
	case op == program.OpQR:
		*out = e.qr(args[0])
	case op == program.OpEighValues || op == program.OpEighVectors:
		if out.Len() == 0 {
			err = e.eigh(n.Args[0])
		}
	default:
		*out, err = reference.Apply(n, args...)
	}
	return err
}

// memory is a pool of slices for results. A slice that no value uses any more is used
// again, also by later executions: to allocate memory costs more than many operations on it.
type memory struct {
	free  map[int][][]float64 // by length
	inUse map[*float64]bool   // by the first element
}

var memories = sync.Pool{New: func() any { return &memory{map[int][][]float64{}, map[*float64]bool{}} }}

// tensor returns a float tensor whose elements are undefined.
func (m *memory) tensor(t program.Type) reference.Tensor {
	n := int(t.Size())
	if n == 0 {
		return reference.Tensor{Type: t}
	}
	list := m.free[n]
	if len(list) == 0 {
		list = append(list, make([]float64, n))
	}
	data := list[len(list)-1]
	m.free[n], m.inUse[&data[0]] = list[:len(list)-1], true
	return reference.Tensor{Type: t, Floats: data}
}

// release makes the memory of x, which is no value any more, free for other results, unless
// one of the other values shares it.
func (m *memory) release(x reference.Tensor, others []reference.Tensor) {
	shares := func(o reference.Tensor) bool { return len(o.Floats) > 0 && &o.Floats[0] == &x.Floats[0] }
	if len(x.Floats) > 0 && m.inUse[&x.Floats[0]] && !slices.ContainsFunc(others, shares) {
		delete(m.inUse, &x.Floats[0])
		m.free[len(x.Floats)] = append(m.free[len(x.Floats)], x.Floats)
	}
}

// arithmetic is a sum, difference, product or quotient of floats, row by row.
func (m *memory) arithmetic(n *program.Node, x, y reference.Tensor) reference.Tensor {
	out := m.tensor(n.Type)
	if x.Type.Equal(y.Type) {
		combine(n.Op, out.Floats, x.Floats, y.Floats)
		return out
	}
	length := n.Type.Shape[n.Type.Rank()-1]
	xs, ys := rows(x, n.Type.Shape), rows(y, n.Type.Shape)
	for i := range len(out.Floats) / length {
		combine(n.Op, out.Floats[i*length:][:length], xs(i), ys(i))
	}
	return out
}

// rows returns a function from i to row i of an operand, broadcast to a shape: repeated along the
// axes where the operand has one element, or everywhere if it is a scalar.
func rows(x reference.Tensor, shape []int) func(i int) []float64 {
	last := len(shape) - 1
	steps := broadcastStrides(x.Type.Shape, len(shape))
	row := make([]float64, shape[last])
	return func(i int) []float64 {
		from := rowOffset(shape[:last], steps, i)
		if steps[last] == 1 {
			return x.Floats[from:][:len(row)]
		}
		for k := range row {
			row[k] = x.Floats[from]
		}
		return row
	}
}

// broadcastStrides returns the strides of a shape, 0 along the axes that are repeated.
func broadcastStrides(shape []int, rank int) []int {
	steps := make([]int, rank)
	for axis, step := range strides(shape) {
		if shape[axis] > 1 {
			steps[axis] = step
		}
	}
	return steps
}

// selectsRows reports whether a select takes whole rows, or all elements, from one operand.
func selectsRows(n *program.Node, args []reference.Tensor) bool {
	cond := args[0].Type
	return args[1].Type.Equal(n.Type) && args[2].Type.Equal(n.Type) && (cond.Rank() == 0 || cond.Shape[cond.Rank()-1] == 1)
}

// selectRows takes each row from x or y, by its condition.
func (m *memory) selectRows(cond, x, y reference.Tensor) reference.Tensor {
	if cond.Len() == 1 {
		return []reference.Tensor{y, x}[cond.Ints[0]]
	}
	out := m.tensor(x.Type)
	last := x.Type.Rank() - 1
	length, steps := x.Type.Shape[last], broadcastStrides(cond.Type.Shape, last+1)
	for i := range len(out.Floats) / length {
		from := []reference.Tensor{y, x}[cond.Ints[rowOffset(x.Type.Shape[:last], steps, i)]]
		copy(out.Floats[i*length:][:length], from.Floats[i*length:])
	}
	return out
}

// combine applies an arithmetic operation to two slices of one length.
func combine(op program.Op, out, x, y []float64) {
	out, y = out[:len(x)], y[:len(x)]
	switch op {
	case program.OpAdd:
		for i, v := range x {
			out[i] = v + y[i]
		}
	case program.OpSub:
		for i, v := range x {
			out[i] = v - y[i]
		}
	case program.OpMul:
		for i, v := range x {
			out[i] = v * y[i]
		}
	default:
		for i, v := range x {
			out[i] = v / y[i]
		}
	}
}

// transpose permutes the axes of x, a float tensor.
func (m *memory) transpose(x reference.Tensor, axes []int) reference.Tensor {
	if slices.IsSorted(axes) {
		return x
	}
	t := program.Type{DType: program.Float}
	var steps []int
	for _, a := range axes {
		t.Shape = append(t.Shape, x.Type.Shape[a])
		steps = append(steps, strides(x.Type.Shape)[a])
	}
	out := m.tensor(t)
	last := len(axes) - 1
	for i := range len(out.Floats) / t.Shape[last] {
		row, at := out.Floats[i*t.Shape[last]:][:t.Shape[last]], rowOffset(t.Shape[:last], steps, i)
		for k := range row {
			row[k] = x.Floats[at]
			at += steps[last]
		}
	}
	return out
}

// rowOffset is the position of the first element of row i. shape and steps are those of the
// tensor without the last axis.
func rowOffset(shape, steps []int, i int) int {
	at := 0
	for axis, d := range slices.Backward(shape) {
		at += i % d * steps[axis]
		i /= d
	}
	return at
}

// strides returns the distance in memory between neighbours along each axis.
func strides(shape []int) []int {
	out := make([]int, len(shape))
	step := 1
	for i, d := range slices.Backward(shape) {
		out[i] = step
		step *= d
	}
	return out
}

// sortColumns sorts the columns of each matrix by their keys, in descending order.
func (m *memory) sortColumns(x, keys reference.Tensor) reference.Tensor {
	out := m.tensor(x.Type)
	_, cols, count := matricesOf(x.Type)
	for i := range count {
		keys, order := slicePart(keys.Floats, i, count), make([]int, cols)
		for k := range order {
			order[k] = k
		}
		slices.SortStableFunc(order, func(j, k int) int { return cmp.Compare(keys[k], keys[j]) }) // NaN is less than any number
		from, to := slicePart(x.Floats, i, count), slicePart(out.Floats, i, count)
		for at := 0; at < len(from); at += cols {
			row, sorted := from[at:][:cols], to[at:][:cols]
			for k, j := range order {
				sorted[k] = row[j]
			}
		}
	}
	return out
}

// dot multiplies the matrices [left, contracted] and [contracted, right] of each
// batch. Operands whose axes have no strides of matrices are transposed first.
func (m *memory) dot(n *program.Node, x, y reference.Tensor) reference.Tensor {
	a := n.Attr
	left := program.OtherAxes(x.Type.Rank(), a.LhsBatch, a.LhsContract)
	right := program.OtherAxes(y.Type.Rank(), a.RhsBatch, a.RhsContract)
	lhs := m.matrices(x, a.LhsBatch, left, a.LhsContract)
	rhs := m.matrices(y, a.RhsBatch, a.RhsContract, right)
	out := m.tensor(n.Type)
	clear(out.Floats)
	if lhs.Rows == 1 && rhs.Cols == 1 && lhs.step == 1 && rhs.step == 1 {
		interleavedProducts(out.Floats, lhs, rhs)
		return out
	}
	// A matrix times its own transpose takes half the time.
	symmetric := n.Args[0] == n.Args[1] && slices.Equal(a.LhsContract, a.RhsContract) && slices.Equal(a.LhsBatch, a.RhsBatch)
	for i := range lhs.count {
		c := linalg.RowMajor(slicePart(out.Floats, i, lhs.count), lhs.Rows, rhs.Cols)
		if symmetric {
			linalg.AddSymmetricSingle(c, lhs.at(i), rhs.at(i))
		} else {
			linalg.MulAddSingle(c, lhs.at(i), rhs.at(i))
		}
	}
	return out
}

// interleavedProducts adds the inner products of vectors that are interleaved in memory, like the
// columns of a matrix.
func interleavedProducts(out []float64, x, y stack) {
	for k := range x.Cols {
		a, b := x.Data[k*x.ColStride:][:len(out)], y.Data[k*y.RowStride:][:len(out)]
		for i, v := range a {
			out[i] += v * b[i]
		}
	}
}

// stack is a number of matrices of the same shape and strides. Each begins step elements
// after the one before.
type stack struct {
	linalg.Matrix
	count, step int
}

func (s stack) at(i int) linalg.Matrix {
	m := s.Matrix
	m.Data = m.Data[i*s.step:]
	return m
}

// matrices returns x as a stack of matrices with the given axes.
func (m *memory) matrices(x reference.Tensor, batch, rows, cols []int) stack {
	step, ok1 := mergedStride(x.Type.Shape, batch)
	rowStride, ok2 := mergedStride(x.Type.Shape, rows)
	colStride, ok3 := mergedStride(x.Type.Shape, cols)
	count, height, width := product(x.Type.Shape, batch), product(x.Type.Shape, rows), product(x.Type.Shape, cols)
	if !ok1 || !ok2 || !ok3 {
		x = m.transpose(x, slices.Concat(batch, rows, cols))
		step, rowStride, colStride = height*width, width, 1
	}
	first := linalg.Matrix{Rows: height, Cols: width, RowStride: rowStride, ColStride: colStride, Data: x.Floats}
	return stack{first, count, step}
}

// mergedStride is the stride of the given axes merged into one; ok is false if their
// elements are not equally far apart.
func mergedStride(shape, axes []int) (stride int, ok bool) {
	all := strides(shape)
	next := 0 // the stride that the next axis to the left must have
	for _, axis := range slices.Backward(axes) {
		switch {
		case shape[axis] == 1:
			continue
		case next == 0:
			stride = all[axis]
		case all[axis] != next:
			return 0, false
		}
		next = all[axis] * shape[axis]
	}
	return stride, true
}

// product is the number of elements along the given axes.
func product(shape, axes []int) int {
	n := 1
	for _, a := range axes {
		n *= shape[a]
	}
	return n
}

// slicePart is one of count equal parts of data.
func slicePart(data []float64, i, count int) []float64 {
	size := len(data) / count
	return data[i*size : (i+1)*size]
}

var errNoConvergence = errors.New("the eigenvalue iteration did not converge")

// qr returns the factor Q of each matrix, with the signs of LAPACK's Householder
// reflections.
func (m *memory) qr(x reference.Tensor) reference.Tensor {
	out := m.tensor(x.Type)
	copy(out.Floats, x.Floats)
	rows, cols, count := matricesOf(x.Type)
	for i := range count {
		if a := slicePart(out.Floats, i, count); allFinite(a) {
			linalg.QRSingle(linalg.RowMajor(a, rows, cols))
		} else {
			fillNaN(a)
		}
	}
	return out
}

// matricesOf returns the shape of the matrices of the last two axes, and their number.
func matricesOf(t program.Type) (rows, cols, count int) {
	shape := t.Shape[t.Rank()-2:]
	return shape[0], shape[1], int(t.Size()) / (shape[0] * shape[1])
}

// eigh decomposes the matrices of a value and sets the results of all nodes that compute its
// eigenvalues or eigenvectors.
func (e *execution) eigh(operand program.ID) error {
	x := e.values[operand]
	size, _, count := matricesOf(x.Type)
	vectors := e.tensor(x.Type)
	values := e.tensor(program.FloatType(x.Type.Shape[:x.Type.Rank()-1]...))
	copy(vectors.Floats, x.Floats)
	withVectors := false
	for i, n := range e.p.Nodes {
		switch id := len(e.p.Inputs) + i; {
		case n.Op == program.OpEighValues && n.Args[0] == operand:
			e.values[id] = values
		case n.Op == program.OpEighVectors && n.Args[0] == operand:
			e.values[id], withVectors = vectors, true
		}
	}
	for i := range count {
		if !decompose(withVectors, size, slicePart(vectors.Floats, i, count), slicePart(values.Floats, i, count)) {
			return errNoConvergence
		}
	}
	e.release(values, e.values) // unless it is the result of a node
	e.release(vectors, e.values)
	return nil
}

// decompose replaces the n×n matrix a, of which it reads the lower triangle, by its
// eigenvectors and writes the eigenvalues, ascending, to w.
func decompose(vectors bool, n int, a, w []float64) bool {
	for i := range n {
		for j := range i {
			a[j*n+i] = a[i*n+j]
		}
	}
	if !allFinite(a) {
		fillNaN(a)
		fillNaN(w)
		return true
	}
	if vectors {
		return linalg.Eigh(linalg.RowMajor(a, n, n), w)
	}
	return linalg.EighValues(linalg.RowMajor(a, n, n), w)
}

// allFinite reports whether all elements of a matrix are finite. By their definition, the results
// of decompositions are NaN for matrices that are not.
func allFinite(data []float64) bool {
	return !slices.ContainsFunc(data, func(v float64) bool { return v-v != 0 }) // ∞ − ∞ and NaN − NaN are NaN
}

func fillNaN(data []float64) {
	for i := range data {
		data[i] = math.NaN()
	}
}
