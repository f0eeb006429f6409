package bench

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/matmul"
	"github.com/cage-qat/cage/host/model/architecture"
)

// PeakOptions are the options of [Peaks].
type PeakOptions struct {
	Runs    int           // of each measurement, after one run that warms up and is not counted
	Time    time.Duration // the shortest time of a run
	Squares []int         // sizes of square matrices
	Widths  []int         // widths of models
	Tokens  int           // tokens in a step of these models
}

// A Rate is a number of operations per second.
type Rate struct {
	Threads int `json:"threads"`
	// Best is the rate of the fastest run: other load on the machine only makes runs slower.
	Best   float64 `json:"best"`
	Median float64 `json:"median"`
	// Share is Best divided by the instruction's best rate on the same threads; 0 if there is none.
	Share float64 `json:"share_of_peak,omitempty"`
}

// InstructionRates holds the rates of an instruction.
type InstructionRates struct {
	Name  string `json:"name"`
	Rates []Rate `json:"rates"`
}

// A Product is a kind of matrix product, or of batched matrix product.
type Product struct {
	Name string `json:"name"`
	// The sizes: Batch products of an M×K by a K×N matrix.
	Batch int `json:"batch"`
	M     int `json:"m"`
	N     int `json:"n"`
	K     int `json:"k"`
	// Numbers is the type of the operands: float32, bfloat16, or integers of 4 or 8 bits.
	Numbers     string `json:"numbers"`
	Instruction string `json:"instruction"`
	Rates       []Rate `json:"rates"`
}

// A PeakReport holds operations per second. An operation is a multiplication or an addition.
type PeakReport struct {
	Build        engine.BuildInfo   `json:"build"`
	Kernels      string             `json:"kernels"` // the kernel tier of package matmul
	Threads      []int              `json:"threads"`
	Instructions []InstructionRates `json:"instructions"`
	Products     []Product          `json:"products"`
}

// Check returns an error for options that cannot be measured.
func (o PeakOptions) Check() error {
	if o.Runs < 1 || o.Time < 0 || o.Tokens < 1 {
		return fmt.Errorf("got %d runs of %v and %d tokens, want at least one run and one token, "+
			"and no negative number", o.Runs, o.Time, o.Tokens)
	}
	const most = 1 << 14 // matrices of a gigabyte
	for _, n := range append(slices.Clone(o.Squares), o.Widths...) {
		if n < 1 || n > most {
			return fmt.Errorf("got size %d, want 1 to %d", n, most)
		}
	}
	if o.Tokens > math.MaxInt32/most {
		return fmt.Errorf("got %d tokens, want at most %d", o.Tokens, math.MaxInt32/most)
	}
	return nil
}

type operation struct {
	work  float64 // operations in one call of once
	rates *[]Rate
	// once does the work on the given number of threads. If perThread is set, it works on a single
	// thread, and is called on all threads at once.
	once      func(threads int) error
	perThread bool
}

// Peaks runs all measurements, on one thread and on GOMAXPROCS threads. Operations are run in turn,
// A B C A B C …, so that a temporary load on the machine does not affect all runs of one operation.
func Peaks(ctx context.Context, o PeakOptions) (*PeakReport, error) {
	tier, err := engine.ProductTier()
	if err != nil {
		return nil, err
	}
	dev, err := engine.Open("cpu", engine.Options{})
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	r := &PeakReport{Build: dev.BuildInfo(), Kernels: tier.Name(), Threads: []int{1}}
	if most := runtime.GOMAXPROCS(0); most > 1 {
		r.Threads = append(r.Threads, most)
	}
	var timed []operation
	peaks := matmul.Peaks()
	r.Instructions = make([]InstructionRates, len(peaks))
	for i, p := range peaks {
		const repetitions = 10000 // long compared with reading the clock, short compared with a run
		r.Instructions[i].Name = p.Instruction
		timed = append(timed, operation{
			work: repetitions * float64(p.Operations), rates: &r.Instructions[i].Rates,
			perThread: true,
			once:      func(int) error { p.Run(repetitions); return nil },
		})
	}
	products, err := r.addProducts(tier, o)
	if err != nil {
		return nil, err
	}
	timed = append(timed, products...)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, n := range r.Threads {
		runtime.GOMAXPROCS(n)
		all := make([][]float64, len(timed))
		for round := range 1 + o.Runs {
			for i, s := range timed {
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				rate, err := s.run(n, o.Time)
				if err != nil {
					return nil, err
				}
				if round > 0 {
					all[i] = append(all[i], rate)
				}
			}
		}
		for i, s := range timed {
			rate := Rate{Threads: n, Best: slices.Max(all[i]), Median: quantile(all[i], 0.5)}
			*s.rates = append(*s.rates, rate)
		}
	}
	for i := range r.Products {
		p := &r.Products[i]
		same := func(i InstructionRates) bool { return i.Name == p.Instruction }
		at := slices.IndexFunc(r.Instructions, same)
		for j := range p.Rates {
			if at >= 0 {
				p.Rates[j].Share = p.Rates[j].Best / r.Instructions[at].Rates[j].Best
			}
		}
	}
	return r, nil
}

// run calls once repeatedly, for at least the given time, and returns the operations per second.
func (s operation) run(threads int, least time.Duration) (float64, error) {
	callers := 1
	if s.perThread {
		callers = threads
	}
	counts, errs := make([]int, callers), make([]error, callers)
	began := time.Now()
	work := func(caller int) {
		for errs[caller] == nil && (time.Since(began) < least || counts[caller] == 0) {
			errs[caller] = s.once(threads)
			counts[caller]++
		}
	}
	var others sync.WaitGroup
	for caller := 1; caller < callers; caller++ {
		others.Go(func() { work(caller) })
	}
	work(0)
	others.Wait()
	seconds, calls := time.Since(began).Seconds(), 0
	for caller, n := range counts {
		if errs[caller] != nil {
			return 0, errs[caller]
		}
		calls += n
	}
	return float64(calls) * s.work / max(seconds, 1e-9), nil
}

// A productShape describes a product of tensors with axes [batch, rows, columns], one of which is
// contracted.
type productShape struct {
	name           string
	batch, m, n, k int
	left, right    int // the contracted axis
}

func (f productShape) leftDims() []int  { return f.dims(f.m, f.left == 1) }
func (f productShape) rightDims() []int { return f.dims(f.n, f.right == 1) }

func (f productShape) dims(cross int, first bool) []int {
	if first {
		return []int{f.batch, f.k, cross}
	}
	return []int{f.batch, cross, f.k}
}

// forms returns squares of the given sizes, and the products in models of the given widths: those
// of a linear layer (W1 of the feed-forward network), forward and for the gradients of its input
// and weight, and those of attention scores and values, with heads of size 64.
func forms(o PeakOptions) (list []productShape) {
	for _, n := range o.Squares {
		list = append(list, productShape{"square", 1, n, n, n, 2, 1})
	}
	const headSize, longest = 64, 256
	context := min(longest, o.Tokens)
	for _, width := range o.Widths {
		hidden, size := architecture.SwiGLUHidden(width), min(headSize, width)
		heads := o.Tokens / context * (width / size)
		list = append(list,
			productShape{"x·Wᵀ", 1, o.Tokens, hidden, width, 2, 2},
			productShape{"dy·W", 1, o.Tokens, width, hidden, 2, 1},
			productShape{"dyᵀ·x", 1, hidden, width, o.Tokens, 1, 1},
			productShape{"q·kᵀ", heads, context, context, size, 2, 2},
			productShape{"p·v", heads, context, size, context, 2, 1})
	}
	return list
}

func (r *PeakReport) addProducts(tier *matmul.Tier, o PeakOptions) (list []operation, err error) {
	all := forms(o)
	shared := newOperands(all)
	numbers := []struct {
		name       string
		arithmetic matmul.Arithmetic
		largest    int // the largest integer; 0 for floats
	}{
		{"float32", matmul.Float32, 0}, {"bfloat16", matmul.BFloat16, 0},
		{"4-bit", matmul.Int8, 7}, {"8-bit", matmul.Int8, 127},
	}
	r.Products = make([]Product, 0, len(all)*len(numbers))
	for _, f := range all {
		for _, kind := range numbers {
			r.Products = append(r.Products, Product{
				Name: f.name, Batch: f.batch, M: f.m, N: f.n, K: f.k, Numbers: kind.name,
				Instruction: tier.Instruction(kind.arithmetic, kind.largest),
			})
			once, err := byMatmul(tier, kind.arithmetic, f, shared, kind.largest)
			if err != nil {
				return nil, fmt.Errorf("%s %d×%d×%d of %s: %w", f.name, f.m, f.n, f.k, kind.name, err)
			}
			operations := 2 * float64(f.batch) * float64(f.m) * float64(f.n) * float64(f.k)
			rates := &r.Products[len(r.Products)-1].Rates
			list = append(list, operation{work: operations, rates: rates, once: once})
		}
	}
	return list, nil
}

func byMatmul(
	tier *matmul.Tier, a matmul.Arithmetic, f productShape, o *operands, largest int,
) (once func(threads int) error, err error) {
	p, err := matmul.New(tier, a, layout(f.leftDims(), f.left), layout(f.rightDims(), f.right))
	if err != nil {
		return nil, err
	}
	left, right := o.of(size(f.leftDims()), largest), o.of(size(f.rightDims()), largest)
	return func(threads int) error {
		out := matmul.Results{Float32: o.out[:p.Size()]}
		return p.Run(out, left, right, matmul.Scales{}, parallel(threads))
	}, nil
}

// layout returns the layout of a tensor [batch, rows, columns] with one axis contracted.
func layout(dims []int, contracted int) matmul.Layout {
	axes := []matmul.Axis{
		{Size: dims[0], Stride: dims[1] * dims[2]}, {Size: dims[1], Stride: dims[2]},
		{Size: dims[2], Stride: 1},
	}
	cross := axes[3-contracted:][:1]
	return matmul.Layout{Batch: axes[:1], Cross: cross, Contracted: axes[contracted:][:1]}
}

// parallel returns a function that runs n tasks on the given number of threads.
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

// operands holds the inputs and outputs of all products, which are timed one at a time.
type operands struct {
	floats   []float32
	integers map[int][]int8 // by the largest value
	out      []float32
}

func newOperands(all []productShape) *operands {
	most, results := 0, 0
	for _, f := range all {
		most, results = max(most, size(f.leftDims()), size(f.rightDims())), max(results, f.batch*f.m*f.n)
	}
	return &operands{floats(most), map[int][]int8{}, make([]float32, results)}
}

// of returns n elements: integers of magnitude up to largest, or floats if largest is 0.
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

// floats returns random numbers: products of equal numbers take less power and perhaps less time.
func floats(n int) []float32 {
	r, x := rand.New(rand.NewPCG(1, 2)), make([]float32, n)
	for i := range x {
		x[i] = 2*r.Float32() - 1
	}
	return x
}

func size(dims []int) int { return dims[0] * dims[1] * dims[2] }
