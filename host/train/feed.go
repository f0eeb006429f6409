package train

import (
	"github.com/cage-qat/cage/host/train/assembly"
	"github.com/cage-qat/cage/host/train/step"
)

// feed brings the micro-batches of each step to the device while the step before is
// computed. Step t has the batches from (t−1)·accumulate on, however it is reached, so
// that what was read ahead and not used leaves no trace in a checkpoint.
type feed struct {
	source  assembly.Batches
	load    func([][]int32) (*step.Batches, error)
	last    int          // step of the run
	memory  [2][][]int32 // of the step that is computed and of the next
	step    int          // that is on its way, 0 for none
	arrived chan delivery
}

// delivery is what was loaded for a step.
type delivery struct {
	batches *step.Batches
	targets int64 // in them
	err     error
}

// newFeed feeds the steps up to last.
func newFeed(source assembly.Batches, compiled *step.Compiled, last int) *feed {
	f := &feed{source: source, load: compiled.Load, last: last, arrived: make(chan delivery, 1)}
	for i := range f.memory {
		for range compiled.Plan().Accumulate {
			f.memory[i] = append(f.memory[i], make([]int32, source.BatchLen()))
		}
	}
	return f
}

// take returns the micro-batches of step t, which is done before the next call, and begins
// to load those of the step after it.
func (f *feed) take(t int) (delivery, error) {
	if f.step != t {
		f.close()
		f.begin(t)
	}
	got := <-f.arrived
	f.step = 0
	if got.err == nil && t < f.last {
		f.begin(t + 1)
	}
	return got, got.err
}

// begin loads step t on a goroutine of its own.
func (f *feed) begin(t int) {
	f.step = t
	go func() { f.arrived <- f.read(t) }()
}

func (f *feed) read(t int) (d delivery) {
	list := f.memory[t%len(f.memory)]
	for i := range list {
		if err := f.source.At(int64(t-1)*int64(len(list))+int64(i), list[i]); err != nil {
			return delivery{err: err}
		}
	}
	d.targets = f.source.Finish(list)
	d.batches, d.err = f.load(list)
	return d
}

// close waits for what is on its way and frees it.
func (f *feed) close() {
	if f.step == 0 {
		return
	}
	if got := <-f.arrived; got.batches != nil {
		got.batches.Close()
	}
	f.step = 0
}
