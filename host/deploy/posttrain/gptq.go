// Package posttrain quantizes trained weights, one matrix at a time: by rounding to the nearest
// level of a grid (RTN), or by GPTQ (Frantar et al., "GPTQ: Accurate Post-Training Quantization for
// Generative Pre-trained Transformers", 2023), in which the columns that are not yet rounded are
// adjusted to compensate for the error of those that are.
//
// A grid is derived from the output of a quantizer's program for a weight: a scale for each group
// of elements, and the numbers that codes represent. The package does not depend on the quantizer.
// Models, devices and files are handled elsewhere; host/deploy/quantize provides the inputs of the
// layers.
package posttrain

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"

	"github.com/cage-qat/cage/internal/linalg"
	"github.com/cage-qat/cage/internal/lists"
)

// Rescale computes new scales for a group of columns, one for each row, when the column loop enters
// the group. w is the current matrix: columns that are already rounded hold their rounded values,
// the others hold corrected ones.
type Rescale func(group int, w []float64) ([]float64, error)

// lazyColumns is the number of columns whose corrections are applied by a single matrix product
// (section 3.3 of the paper, "lazy batch updates").
const lazyColumns = 128

// Result describes how a matrix was rounded with GPTQ.
type Result struct {
	// Damping is the final fraction; see [Settings].Damping. 0 means that H could not be made
	// positive definite: nothing was rounded, and w is to be discarded.
	Damping float64
	Dead    int // number of columns whose inputs are all 0; their weights are set to 0
}

// Round rounds the matrix w, [rows, columns], to a grid by GPTQ, which keeps the change of the
// layer's outputs small for inputs with the Hessian h. For each column j, with H⁻¹ = Uᵀ·U, it
// computes
//
//	q = round(w_j) ; e = (w_j − q)/U_jj ; w_t ← w_t − e·U_jt for t > j
//
// which is algorithm 1 of the paper, with the damping and column order of s. The rounded matrix
// replaces w, and h is overwritten. If rescale is nil, the scales of the grid are kept; otherwise
// they are replaced. That cannot be combined with s.ActivationOrder, which rounds columns of all
// groups in any order. It stops soon after ctx is done.
func Round(
	ctx context.Context, w []float64, h *Hessian, g *Grid, s Settings, rescale Rescale,
) (*Result, error) {
	if h.Size != g.Columns || len(h.Data) != g.Columns*g.Columns {
		return nil, fmt.Errorf("got inputs of %d features for a matrix of %d columns", h.Size, g.Columns)
	}
	if slices.ContainsFunc(h.Data, func(v float64) bool { return v-v != 0 }) {
		return nil, fmt.Errorf("the inputs of the layer are NaN or infinite")
	}
	if rescale != nil && s.ActivationOrder {
		return nil, fmt.Errorf("scales of the current weights cannot be combined with activation " +
			"order: use those of the original weights")
	}
	q := &gptq{Settings: s, rescale: rescale, grid: g, w: w, h: h, result: &Result{}}
	n := h.Size
	for j := range n { // dead inputs, which are all 0
		if h.Data[j*n+j] != 0 {
			continue
		}
		h.Data[j*n+j] = 1
		q.result.Dead++
		for i := range g.Rows {
			w[i*n+j] = 0
		}
	}
	q.sort()
	if !q.factor() {
		return q.result, nil
	}
	for from := 0; from < g.Columns; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		to, err := q.enter(from)
		if err != nil {
			return nil, err
		}
		// Rows are independent, and are divided among the processors.
		part := (g.Rows + runtime.GOMAXPROCS(0) - 1) / runtime.GOMAXPROCS(0)
		strips(0, g.Rows, part, func(low, high int) { q.rows(low, high, from, to) })
		from = to
	}
	if q.ActivationOrder {
		back := make([]int, n)
		for i, j := range q.order {
			back[j] = i
		}
		permute(q.w, back)
	}
	return q.result, nil
}

type gptq struct {
	Settings
	rescale Rescale
	grid    *Grid
	w       []float64 // [rows, columns], in loop order
	h       *Hessian
	u       []float64
	order   []int // the column of the matrix at each index of the loop
	result  *Result
}

// sort permutes the columns of both matrices into loop order.
func (q *gptq) sort() {
	n := q.h.Size
	q.order = lists.Range(n)
	if !q.ActivationOrder {
		return
	}
	slices.SortStableFunc(q.order, func(a, b int) int {
		return cmp.Compare(q.h.Data[b*n+b], q.h.Data[a*n+a])
	})
	permute(q.w, q.order)
	permute(q.h.Data, q.order)
	transpose(q.h.Data, n)
	permute(q.h.Data, q.order)
}

func permute(m []float64, order []int) {
	from := make([]float64, len(order))
	for row := range slices.Chunk(m, len(order)) {
		copy(from, row)
		for i, j := range order {
			row[i] = from[j]
		}
	}
}

func (q *gptq) factor() bool {
	n := q.h.Size
	mean := 0.0
	for j := range n {
		mean += q.h.Data[j*n+j] / float64(n)
	}
	q.u = make([]float64, n*n)
	for damping := q.Damping; damping <= 1; damping *= 10 {
		copy(q.u, q.h.Data)
		for j := range n {
			q.u[j*n+j] += damping * mean
		}
		if inverseFactor(q.u, n) {
			q.result.Damping = damping
			return true
		}
		if damping == 0 {
			break
		}
	}
	return false
}

// enter prepares the loop for the columns that begin at from, and returns their end: at most
// lazyColumns further, and not in a later group whose scales are still to be computed.
func (q *gptq) enter(from int) (to int, err error) {
	g := q.grid
	to = min(from+lazyColumns, g.Columns)
	if q.rescale == nil {
		return to, nil
	}
	if from%g.Group == 0 {
		scales, err := q.rescale(from/g.Group, q.w)
		if err != nil {
			return 0, err
		}
		for i, s := range scales {
			g.Scales[i*g.Groups()+from/g.Group] = s
		}
	}
	return min(to, from-from%g.Group+g.Group), nil
}

// rows rounds columns from ≤ j < to of rows low ≤ i < high, and corrects all later columns.
func (q *gptq) rows(low, high, from, to int) {
	n := q.h.Size
	errors := make([]float64, (high-low)*(to-from))
	for i := low; i < high; i++ {
		row, e := q.w[i*n:(i+1)*n], errors[(i-low)*(to-from):(i-low+1)*(to-from)]
		for j := from; j < to; j++ {
			value := q.grid.round(row[j], i, q.order[j])
			u := q.u[j*n : (j+1)*n]
			e[j-from] = (row[j] - value) / u[j]
			row[j] = value
			for t := j + 1; t < to; t++ {
				row[t] -= e[j-from] * u[t]
			}
		}
	}
	if to == n {
		return
	}
	rest := columns(linalg.RowMajor(q.w[low*n:], high-low, n), to, n)
	later := columns(linalg.RowMajor(q.u[from*n:], to-from, n), to, n)
	linalg.MulAdd(rest, -1, linalg.RowMajor(errors, high-low, to-from), later)
}

// Hessian is the Hessian matrix of the squared error of a linear layer's outputs with respect to a
// row of its weight: 2/n·XᵀX for n inputs X, [n, Size].
type Hessian struct {
	Size int
	Data []float64 // [Size, Size]
}

// Rotate replaces the matrix by RᵀHR, where R rotates each block of the given size. The result is
// the Hessian for rotated inputs.
func (h *Hessian) Rotate(block int) error {
	if block == 1 {
		return nil
	}
	if err := linalg.Rotate(h.Data, h.Size, block); err != nil {
		return err
	}
	transpose(h.Data, h.Size)
	return linalg.Rotate(h.Data, h.Size, block)
}

func transpose(m []float64, n int) {
	for i := range n {
		for j := range i {
			m[i*n+j], m[j*n+i] = m[j*n+i], m[i*n+j]
		}
	}
}
