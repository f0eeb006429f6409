package matrix

import (
	"cmp"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cage-qat/cage/host/tile"
	"github.com/cage-qat/cage/internal/guard"
)

// executor is the name of this one in errors.
const executor = "matrix"

// A Call is a kernel with its memory: a slice for every input and output of its
// program, in order, scalars as slices of one element. An output may be the same slice
// as the input of the same name; all others must be apart.
type Call struct {
	Kernel          *Kernel
	Inputs, Outputs [][]float32
}

// A Runner executes calls, each on one goroutine. It keeps the memory that it works
// with. It is not safe for concurrent use.
type Runner struct {
	workers []*worker
}

// NewRunner makes a runner of so many goroutines; 0 means one for each processor.
func NewRunner(threads int) *Runner {
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	r := &Runner{}
	for range threads {
		r.workers = append(r.workers, &worker{tiles: tile.NewRunner(1), free: map[int64][][]float32{}})
	}
	return r
}

// Run executes the calls, those with most work first: none may write what another
// reads or writes. It fails before anything is written when slices do not fit the
// programs.
func (r *Runner) Run(calls []Call) error {
	order := make([]*Call, len(calls))
	for i := range calls {
		if err := tile.CheckMemory(calls[i].Kernel.p, calls[i].Inputs, calls[i].Outputs); err != nil {
			return err
		}
		order[i] = &calls[i]
	}
	slices.SortStableFunc(order, func(a, b *Call) int { return cmp.Compare(b.Kernel.work, a.Kernel.work) })
	errs := make([]error, len(order))
	var next atomic.Int64
	work := func(w *worker) {
		for {
			i := int(next.Add(1)) - 1
			if i >= len(order) {
				return
			}
			errs[i] = w.run(order[i])
		}
	}
	var running sync.WaitGroup
	for _, w := range r.workers[1:min(len(r.workers), max(1, len(calls)))] {
		running.Go(func() { work(w) })
	}
	work(r.workers[0])
	running.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// worker is the memory of one goroutine.
type worker struct {
	tiles  *tile.Runner
	free   map[int64][][]float32 // by length
	values [][]float32
	calls  []tile.Call
}

// run executes a call.
func (w *worker) run(c *Call) (err error) {
	k := c.Kernel
	defer guard.Catch(executor, k.p.Name, &err)
	if len(w.values) < len(k.sizes) {
		w.values = make([][]float32, len(k.sizes))
	}
	defer clear(w.values)
	copy(w.values, c.Inputs)
	for id, data := range k.fixed {
		w.values[id] = data
	}
	for i := range k.steps {
		s := &k.steps[i]
		for _, id := range s.writes() {
			if o, ok := k.direct[id]; ok {
				w.values[id] = c.Outputs[o]
			} else {
				w.values[id] = w.take(k.sizes[id])
			}
		}
		if err := w.step(s, c); err != nil {
			return err
		}
		for _, id := range s.spent {
			w.free[k.sizes[id]] = append(w.free[k.sizes[id]], w.values[id])
			w.values[id] = nil
		}
	}
	return nil
}

func (w *worker) step(s *step, c *Call) error {
	switch {
	case s.product != nil:
		s.product.run(w.values[s.product.to], w.values[s.product.a.value], w.values[s.product.b.value])
	case s.swap != nil:
		s.swap.run(w.values[s.swap.to], w.values[s.swap.from])
	case s.copied != nil:
		copy(c.Outputs[s.copied.to], w.values[s.copied.from])
	default:
		return w.segment(s.segment)
	}
	return nil
}

// segment runs the program of a segment.
func (w *worker) segment(s *segment) error {
	w.calls = w.calls[:0]
	for i := range s.count {
		c := tile.Call{Kernel: s.kernel}
		for j, id := range s.in {
			v := w.values[id]
			if s.own[j] {
				v = part(v, i, s.count)
			}
			c.Inputs = append(c.Inputs, v)
		}
		for _, id := range s.out {
			c.Outputs = append(c.Outputs, part(w.values[id], i, s.count))
		}
		w.calls = append(w.calls, c)
	}
	defer clear(w.calls)
	return w.tiles.Run(w.calls)
}

// part is the i-th of n equal parts.
func part(data []float32, i, n int) []float32 {
	size := len(data) / n
	return data[i*size : (i+1)*size]
}

// take is memory for n elements, which hold anything.
func (w *worker) take(n int64) []float32 {
	if list := w.free[n]; len(list) > 0 {
		w.free[n] = list[:len(list)-1]
		return list[len(list)-1]
	}
	return make([]float32, n)
}
