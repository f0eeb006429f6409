package bench

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/matmul"
	"github.com/cage-qat/cage/host/model/architecture"
)

// A Product is a kind of product of matrices, or of a batch of them.
type Product struct {
	Name string `json:"name"`
	// Batch, M, N and K are its sizes: of matrices M×K and K×N.
	Batch int `json:"batch"`
	M     int `json:"m"`
	N     int `json:"n"`
	K     int `json:"k"`
	// Numbers are what is multiplied: float32, by the CPU device's own product; and by package
	// matmul float32 ("fused"), bfloat16, or integers of 4 or 8 bits.
	Numbers     string `json:"numbers"`
	Instruction string `json:"instruction"`
	Rates       []Rate `json:"rates"`
}

// deviceFloat32 are the numbers of the CPU device's own product.
const deviceFloat32 = "float32"

func (p *Product) operations() float64 {
	return 2 * float64(p.Batch) * float64(p.M) * float64(p.N) * float64(p.K)
}

// A form is a product of tensors with axes [batch, rows, columns], of which one is summed over.
type form struct {
	name           string
	batch, m, n, k int
	left, right    int // the axis that is summed over
}

func (f form) leftDims() []int  { return f.dims(f.m, f.left == 1) }
func (f form) rightDims() []int { return f.dims(f.n, f.right == 1) }

func (f form) dims(cross int, first bool) []int {
	if first {
		return []int{f.batch, f.k, cross}
	}
	return []int{f.batch, cross, f.k}
}

// forms are squares, and the products of models of the given widths: of a linear layer (W1 of the
// feed-forward one) forward, and of the gradients of its input and its weight; of attention, the
// scores and the values, each with heads of 64.
func forms(o PeakOptions) (list []form) {
	for _, n := range o.Squares {
		list = append(list, form{"square", 1, n, n, n, 2, 1})
	}
	const headSize, longest = 64, 256
	context := min(longest, o.Tokens)
	for _, width := range o.Widths {
		hidden, size := architecture.SwiGLUHidden(width), min(headSize, width)
		heads := o.Tokens / context * (width / size)
		list = append(list,
			form{"x·Wᵀ", 1, o.Tokens, hidden, width, 2, 2},
			form{"dy·W", 1, o.Tokens, width, hidden, 2, 1},
			form{"dyᵀ·x", 1, hidden, width, o.Tokens, 1, 1},
			form{"q·kᵀ", heads, context, context, size, 2, 2},
			form{"p·v", heads, context, size, context, 2, 1})
	}
	return list
}

// products lists the products in the report. The returned function frees what they use, also after
// an error.
func (r *PeakReport) products(dev *engine.Device, tier *matmul.Tier, o PeakOptions) (list []subject, closeAll func(), err error) {
	var closers []func() error
	closeAll = func() {
		for _, c := range closers {
			_ = c() // what is measured is measured
		}
	}
	all := forms(o)
	shared := newOperands(all)
	numbers := []struct {
		name       string
		arithmetic matmul.Arithmetic
		largest    int // of integers; 0 for floats
	}{
		{deviceFloat32, matmul.Float32, 0},
		{"float32 fused", matmul.Float32, 0},
		{"bfloat16", matmul.BFloat16, 0},
		{"4-bit", matmul.Int8, 7},
		{"8-bit", matmul.Int8, 127},
	}
	r.Products = make([]Product, 0, len(all)*len(numbers))
	for _, f := range all {
		for _, kind := range numbers {
			r.Products = append(r.Products, Product{Name: f.name, Batch: f.batch, M: f.m, N: f.n, K: f.k, Numbers: kind.name, Instruction: tier.Instruction(kind.arithmetic, kind.largest)})
			p := &r.Products[len(r.Products)-1]
			s := subject{work: p.operations(), rates: &p.Rates}
			if kind.name == deviceFloat32 {
				p.Instruction = float32Instruction(r.Build)
				var c []func() error
				s.start, c, err = onDevice(dev, f)
				closers = append(closers, c...)
			} else {
				s.start, err = byMatmul(tier, kind.arithmetic, f, shared, kind.largest)
			}
			if err != nil {
				return nil, closeAll, fmt.Errorf("%s %d×%d×%d of %s: %w", f.name, f.m, f.n, f.k, kind.name, err)
			}
			list = append(list, s)
		}
	}
	return list, closeAll, nil
}

// float32Instruction names the instruction with which the CPU device multiplies matrices in
// float32; "" if it is none of [matmul.Peaks].
func float32Instruction(b engine.BuildInfo) string {
	return map[string]string{"avx512": "VFMADD231PS 512", "avx2": "VFMADD231PS 256"}[b.SIMD]
}

func onDevice(dev *engine.Device, f form) (start func(int) func(int) error, closers []func() error, err error) {
	var batch []int
	dims := [][]int{f.leftDims(), f.rightDims()}
	axes := []int{f.left, f.right}
	if f.batch > 1 {
		batch = []int{0}
	} else {
		for i := range dims {
			dims[i], axes[i] = dims[i][1:], axes[i]-1
		}
	}
	specs := []engine.Spec{{Name: "left", Shape: shapes.Make(dtypes.Float32, dims[0]...)}, {Name: "right", Shape: shapes.Make(dtypes.Float32, dims[1]...)}}
	product, err := dev.Compile("product", specs, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.DotGeneral(in[0], axes[:1], batch, in[1], axes[1:], batch)}
	})
	if err != nil {
		return nil, nil, err
	}
	closers = append(closers, product.Close)
	var in []*engine.Buffer
	for _, d := range dims {
		b, err := engine.Upload(dev, floats(size(d)), d...)
		if err != nil {
			return nil, closers, err
		}
		in, closers = append(in, b), append(closers, b.Finalize)
	}
	return func(int) func(int) error {
		return func(int) error {
			out, err := product.Run(in, nil)
			return errors.Join(err, engine.FinalizeAll(out...))
		}
	}, closers, nil
}

func byMatmul(tier *matmul.Tier, a matmul.Arithmetic, f form, o *operands, largest int) (start func(int) func(int) error, err error) {
	p, err := matmul.New(tier, a, layout(f.leftDims(), f.left), layout(f.rightDims(), f.right))
	if err != nil {
		return nil, err
	}
	left, right, out := o.of(size(f.leftDims()), largest), o.of(size(f.rightDims()), largest), o.out[:p.Size()]
	return func(threads int) func(int) error {
		tasks := parallel(threads)
		return func(int) error { return p.Run(matmul.Results{Float32: out}, left, right, matmul.Scales{}, tasks) }
	}, nil
}

// layout is that of a tensor [batch, rows, columns] of which an axis is summed over.
func layout(dims []int, contracted int) matmul.Layout {
	axes := []matmul.Axis{{Size: dims[0], Stride: dims[1] * dims[2]}, {Size: dims[1], Stride: dims[2]}, {Size: dims[2], Stride: 1}}
	return matmul.Layout{Batch: axes[:1], Cross: axes[3-contracted:][:1], Contracted: axes[contracted:][:1]}
}

// parallel runs tasks on so many threads, this one among them.
func parallel(threads int) func(n int, f func(i int)) {
	if threads == 1 {
		return nil
	}
	return func(n int, f func(i int)) {
		var next atomic.Int64
		work := func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				f(int(i))
			}
		}
		var others sync.WaitGroup
		for range min(n, threads) - 1 {
			others.Go(work)
		}
		work()
		others.Wait()
	}
}

// operands are numbers for all products of package matmul, and room for their results: products are
// timed one by one.
type operands struct {
	floats   []float32
	integers map[int][]int8 // by the largest
	out      []float32
}

func newOperands(all []form) *operands {
	most, results := 0, 0
	for _, f := range all {
		most, results = max(most, size(f.leftDims()), size(f.rightDims())), max(results, f.batch*f.m*f.n)
	}
	return &operands{floats(most), map[int][]int8{}, make([]float32, results)}
}

// of returns elements: integers up to largest, or floats if that is 0.
func (o *operands) of(n, largest int) matmul.Elements {
	if largest == 0 {
		return matmul.Elements{Float32: o.floats[:n]}
	}
	x, ok := o.integers[largest]
	if !ok {
		r := rand.New(rand.NewPCG(3, 4))
		x = make([]int8, len(o.floats))
		for i := range x {
			x[i] = int8(r.IntN(2*largest+1) - largest)
		}
		o.integers[largest] = x
	}
	return matmul.Elements{Int8: x[:n]}
}

// floats are drawn: multiplying numbers that are alike takes less power, and may take less time.
func floats(n int) []float32 {
	r, x := rand.New(rand.NewPCG(1, 2)), make([]float32, n)
	for i := range x {
		x[i] = 2*r.Float32() - 1
	}
	return x
}

func size(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}
