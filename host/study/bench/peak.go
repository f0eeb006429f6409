package bench

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/matmul"
)

// PeakOptions say what to measure, and for how long.
type PeakOptions struct {
	Runs    int           // of each measurement, after one that warms up and does not count
	Time    time.Duration // that a run takes at least
	Squares []int         // sizes of square matrices
	Widths  []int         // of models
	Tokens  int           // in a step of these models
}

// A Rate is how much was done in a second: operations.
type Rate struct {
	Threads int `json:"threads"`
	// Best is that of the fastest run. Other load on the machine makes runs slower, and nothing
	// makes one faster than the processor is.
	Best   float64 `json:"best"`
	Median float64 `json:"median"`
	// Share is Best as a part of that of the instruction on as many threads; 0 for what has none.
	Share float64 `json:"share_of_peak,omitempty"`

	all []float64
}

// Named are the rates of an instruction.
type Named struct {
	Name  string `json:"name"`
	Rates []Rate `json:"rates"`
}

// A PeakReport has operations per second. An operation is a multiplication or an addition.
type PeakReport struct {
	Build        engine.BuildInfo `json:"build"`
	Kernels      string           `json:"kernels"` // the tier of package matmul
	Threads      []int            `json:"threads"`
	Instructions []Named          `json:"instructions"`
	Products     []Product        `json:"products"`
}

// A subject is something to be timed.
type subject struct {
	work  float64 // operations of a call of once
	rates *[]Rate
	// start prepares for so many threads, and returns what does the work. If each is set, that
	// keeps one thread busy, and is called on all threads at once, each with its number; otherwise
	// it uses the threads itself.
	start func(threads int) (once func(thread int) error)
	each  bool
}

// Peaks measures everything, on one thread and on as many as Go uses.
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
	subjects := r.instructions()
	products, closeAll, err := r.products(dev, tier, o)
	defer closeAll()
	if err != nil {
		return nil, err
	}
	if err := inTurn(ctx, append(subjects, products...), r.Threads, o); err != nil {
		return nil, err
	}
	r.addShares()
	return r, nil
}

func (r *PeakReport) instructions() (list []subject) {
	peaks := matmul.Peaks()
	r.Instructions = make([]Named, len(peaks))
	for i, p := range peaks {
		const repetitions = 10000 // long beside a look at the clock, and short beside a run
		r.Instructions[i].Name = p.Instruction
		list = append(list, subject{
			work: repetitions * float64(p.Operations), rates: &r.Instructions[i].Rates, each: true,
			start: func(int) func(int) error { return func(int) error { p.Run(repetitions); return nil } },
		})
	}
	return list
}

// inTurn runs all subjects, A B C A B C …, so that what disturbs the machine for a while disturbs
// no subject in all of its runs. One thread is as many as Go has then.
func inTurn(ctx context.Context, subjects []subject, threads []int, o PeakOptions) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, n := range threads {
		runtime.GOMAXPROCS(n)
		once := make([]func(int) error, len(subjects))
		for i, s := range subjects {
			once[i] = s.start(n)
			*s.rates = append(*s.rates, Rate{Threads: n})
		}
		for round := range 1 + o.Runs {
			for i, s := range subjects {
				if err := ctx.Err(); err != nil {
					return err
				}
				rate, err := s.run(once[i], n, o.Time)
				if err != nil {
					return err
				}
				if round > 0 {
					last := &(*s.rates)[len(*s.rates)-1]
					last.all = append(last.all, rate)
				}
			}
		}
		for _, s := range subjects {
			(*s.rates)[len(*s.rates)-1].sumUp()
		}
	}
	return nil
}

func (r *Rate) sumUp() {
	slices.Sort(r.all)
	n := len(r.all)
	r.Best, r.Median = r.all[n-1], (r.all[(n-1)/2]+r.all[n/2])/2
}

func (s subject) run(once func(int) error, threads int, least time.Duration) (float64, error) {
	if !s.each {
		threads = 1
	}
	counts, errs := make([]int, threads), make([]error, threads)
	began := time.Now()
	work := func(thread int) {
		for time.Since(began) < least || counts[thread] == 0 {
			if errs[thread] = once(thread); errs[thread] != nil {
				return
			}
			counts[thread]++
		}
	}
	var others sync.WaitGroup
	for thread := 1; thread < threads; thread++ {
		others.Go(func() { work(thread) })
	}
	work(0)
	others.Wait()
	seconds, calls := time.Since(began).Seconds(), 0
	for thread, n := range counts {
		if errs[thread] != nil {
			return 0, errs[thread]
		}
		calls += n
	}
	return float64(calls) * s.work / max(seconds, 1e-9), nil
}

func (r *PeakReport) addShares() {
	for i := range r.Products {
		p := &r.Products[i]
		at := slices.IndexFunc(r.Instructions, func(n Named) bool { return n.Name == p.Instruction })
		for j := range p.Rates {
			if at >= 0 {
				p.Rates[j].Share = p.Rates[j].Best / r.Instructions[at].Rates[j].Best
			}
		}
	}
}

// Check refuses sizes of which there is nothing to measure.
func (o PeakOptions) Check() error {
	if o.Runs < 1 || o.Time < 0 || o.Tokens < 1 {
		return fmt.Errorf("%d runs of %v, %d tokens: want at least one run and one token, and no negative number",
			o.Runs, o.Time, o.Tokens)
	}
	const most = 1 << 14 // matrices of a gigabyte
	for _, n := range append(slices.Clone(o.Squares), o.Widths...) {
		if n < 1 || n > most {
			return fmt.Errorf("size %d: want one from 1 to %d", n, most)
		}
	}
	if o.Tokens > math.MaxInt32/most {
		return fmt.Errorf("%d tokens: want at most %d", o.Tokens, math.MaxInt32/most)
	}
	return nil
}
