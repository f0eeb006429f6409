package tile

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/internal/guard"
	"github.com/cage-qat/cage/sdk/program"
)

// executor is the name of this executor in errors.
const executor = "tile"

// A Call is a kernel with its memory: a slice for every input and output of its program,
// in order, with scalars as slices of one element. An output may be the same slice as the
// input of the same name; all others must not overlap.
type Call struct {
	Kernel          *Kernel
	Inputs, Outputs [][]float32
}

// A Runner executes calls. It keeps its working memory, so that in a steady state a run
// allocates nothing. It is not safe for concurrent use.
type Runner struct {
	threads int
	calls   []Call
	states  []state
	units   []unit
	workers []worker
	next    atomic.Int64
	running sync.WaitGroup
	helpers []func() // the workers beside the caller

	mu      sync.Mutex
	advance sync.Cond // a call has finished a phase, or the run has failed
	failed  error     // the first panic of the run
}

// state is what a call has computed so far.
type state struct {
	env []float32
	// folds are the reductions of all parts, reduction by reduction.
	folds []float64
	parts int            // of each tensor
	left  []atomic.Int32 // the number of unfinished units of each phase
	done  int            // the number of finished phases, under the runner's lock
}

// unit is the work on one part of a call's tensors in one phase.
type unit struct{ call, phase, part int }

// partTiles is the number of tiles in a part: enough that taking a unit costs nothing. Sums
// of parts are added in order, so that the bits of sums depend on this number.
const partTiles = 16

// NewRunner makes a runner with the given number of goroutines; 0 means one for each
// processor.
func NewRunner(threads int) *Runner {
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	r := &Runner{threads: threads, workers: make([]worker, threads)}
	r.advance.L = &r.mu
	for i := 1; i < threads; i++ {
		r.helpers = append(r.helpers, func() {
			defer r.running.Done()
			r.work(&r.workers[i])
		})
	}
	return r
}

// Run executes the calls in parallel: none may write what another reads or writes. If
// slices do not fit the programs, it fails before anything is written.
func (r *Runner) Run(calls []Call) error {
	for i := range calls {
		if err := checkMemory(calls[i].Kernel.p, calls[i].Inputs, calls[i].Outputs); err != nil {
			return err
		}
	}
	r.calls, r.failed = calls, nil
	defer func() { r.calls = nil }()
	for len(r.states) < len(calls) {
		r.states = append(r.states, state{})
	}
	for i := range calls {
		if err := r.states[i].begin(&calls[i]); err != nil {
			return err
		}
	}
	r.listUnits()
	r.next.Store(0)
	count := min(len(r.helpers), len(r.units)-1)
	for i := range max(0, count) {
		r.running.Add(1)
		go r.helpers[i]()
	}
	r.work(&r.workers[0])
	r.running.Wait()
	for i := range r.workers {
		clear(r.workers[i].slots) // keep none of the caller's slices alive
	}
	return r.failed
}

// begin prepares the state of a call. A call without tensors is complete afterwards.
func (s *state) begin(c *Call) (err error) {
	k := c.Kernel
	defer guard.Catch(executor, k.p.Name, &err)
	s.parts = (k.size + partTiles*Elements - 1) / (partTiles * Elements)
	s.env = append(s.env[:0], k.env...)
	if n := len(k.reductions) * s.parts; cap(s.folds) < n {
		s.folds = make([]float64, n)
	} else {
		s.folds = s.folds[:n]
	}
	if len(s.left) < len(k.phases) {
		s.left = make([]atomic.Int32, len(k.phases))
	}
	s.done = 0
	for i, v := range k.scalars.list {
		if v.kind == scalarInput {
			s.env[i] = c.Inputs[v.input][0]
		}
	}
	k.scalars.evaluate(0, s.env)
	if len(k.phases) == 0 {
		s.writeScalars(c)
	}
	return nil
}

// writeScalars writes the outputs that are scalars.
func (s *state) writeScalars(c *Call) {
	for i, o := range c.Kernel.outputs {
		if o.tensor < 0 {
			c.Outputs[i][0] = s.env[o.scalar]
		}
	}
}

// listUnits lists the units in the order in which workers take them. The first phase of the next call comes before the
// second phase of a call, so that workers hardly wait for the end of a phase, and the tensors of the call are still in a
// cache.
func (r *Runner) listUnits() {
	r.units = r.units[:0]
	phases := 0
	for _, c := range r.calls {
		phases = max(phases, len(c.Kernel.phases))
	}
	for step := range len(r.calls) + phases {
		for phase := range phases {
			i := step - phase
			if i < 0 || i >= len(r.calls) || phase >= len(r.calls[i].Kernel.phases) {
				continue
			}
			s := &r.states[i]
			for part := range s.parts {
				r.units = append(r.units, unit{i, phase, part})
			}
			s.left[phase].Store(int32(s.parts))
		}
	}
}

// work takes units until there are none left or the run has failed. A unit waits only for units that were taken before
// it, which other workers are computing.
func (r *Runner) work(w *worker) {
	for {
		at := int(r.next.Add(1)) - 1
		if at >= len(r.units) {
			return
		}
		u := &r.units[at]
		if !r.await(u) {
			return
		}
		if err := r.compute(w, u); err != nil {
			r.fail(err)
			return
		}
	}
}

// await waits until the phase before that of a unit is finished. It reports false if the run has failed.
func (r *Runner) await(u *unit) bool {
	if u.phase == 0 {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.states[u.call].done < u.phase && r.failed == nil {
		r.advance.Wait()
	}
	return r.failed == nil
}

// compute computes a unit, and finishes its phase if it is the last one.
func (r *Runner) compute(w *worker, u *unit) (err error) {
	s := &r.states[u.call]
	defer guard.Catch(executor, r.calls[u.call].Kernel.p.Name, &err)
	w.run(&r.calls[u.call], s, u)
	if s.left[u.phase].Add(-1) == 0 {
		r.finish(u.call, u.phase)
	}
	return nil
}

// fail ends the run and wakes the workers that wait.
func (r *Runner) fail(err error) {
	r.mu.Lock()
	if r.failed == nil {
		r.failed = err
	}
	r.mu.Unlock()
	r.advance.Broadcast()
}

// finish finishes a phase of a call. It folds reductions in the order of the parts.
func (r *Runner) finish(call, phase int) {
	c, s := &r.calls[call], &r.states[call]
	k := c.Kernel
	for i, d := range k.reductions {
		if d.phase != phase {
			continue
		}
		total := float64(loops.Neutral(folds[d.op]))
		for _, v := range s.folds[i*s.parts : (i+1)*s.parts] {
			total = loops.Join(folds[d.op], total, v)
		}
		s.env[d.scalar] = float32(total)
	}
	k.scalars.evaluate(phase+1, s.env)
	if phase == len(k.phases)-1 {
		s.writeScalars(c)
	}
	r.mu.Lock()
	s.done = phase + 1
	r.mu.Unlock()
	r.advance.Broadcast()
}

// checkMemory returns an error if slices do not fit the inputs and outputs of a program,
// or if an output has the memory of an input with another name.
func checkMemory(p *program.Program, inputs, outputs [][]float32) error {
	if len(inputs) != len(p.Inputs) || len(outputs) != len(p.Outputs) {
		return fmt.Errorf("program %q: %d inputs and %d outputs, want %d and %d", p.Name, len(inputs), len(outputs), len(p.Inputs), len(p.Outputs))
	}
	for i, in := range p.Inputs {
		if int64(len(inputs[i])) != in.Type.Size() {
			return fmt.Errorf("program %q: input %q has %d elements, want %d", p.Name, in.Name, len(inputs[i]), in.Type.Size())
		}
	}
	for i, out := range p.Outputs {
		if want := p.TypeOf(out.Value).Size(); int64(len(outputs[i])) != want {
			return fmt.Errorf("program %q: output %q has %d elements, want %d", p.Name, out.Name, len(outputs[i]), want)
		}
		for j, in := range p.Inputs {
			if in.Name != out.Name && &inputs[j][0] == &outputs[i][0] {
				return fmt.Errorf("program %q: output %q is the memory of the input %q", p.Name, out.Name, in.Name)
			}
		}
	}
	return nil
}

// worker is the memory of one goroutine: registers, the slots of a tile, and the lanes of
// reductions.
type worker struct {
	registers []float32
	slots     [][]float32
	sums      []loops.Lanes
}

// run computes a unit.
func (w *worker) run(c *Call, s *state, u *unit) {
	k := c.Kernel
	w.reserve(k)
	for i, d := range k.reductions {
		if d.phase == u.phase {
			s.folds[i*s.parts+u.part] = float64(loops.Neutral(folds[d.op]))
		}
	}
	first := u.part * partTiles * Elements
	for at := first; at < min(first+partTiles*Elements, k.size); at += Elements {
		for i, d := range k.reductions {
			w.sums[i].Reset(folds[d.op])
		}
		w.pointSlots(c, at)
		interpret(k.phases[u.phase], w.slots, s.env, w.sums)
		for i, d := range k.reductions {
			if d.phase == u.phase {
				total := &s.folds[i*s.parts+u.part]
				*total = loops.Join(folds[d.op], *total, w.sums[i].Fold(folds[d.op]))
			}
		}
	}
}

// reserve makes room for a kernel.
func (w *worker) reserve(k *Kernel) {
	if n := k.registers * Elements; len(w.registers) < n {
		w.registers = make([]float32, n)
	}
	if len(w.slots) < k.slots {
		w.slots = make([][]float32, k.slots)
	}
	if len(w.sums) < len(k.reductions) {
		w.sums = make([]loops.Lanes, len(k.reductions))
	}
}

// pointSlots points the slots to the tile that begins at an element.
func (w *worker) pointSlots(c *Call, first int) {
	size := c.Kernel.size
	end := min(first+Elements, size)
	at := 0
	for _, list := range [2][][]float32{c.Inputs, c.Outputs} {
		for _, tensor := range list {
			w.slots[at] = nil
			if len(tensor) == size {
				w.slots[at] = tensor[first:end]
			}
			at++
		}
	}
	for r := range c.Kernel.registers {
		w.slots[at+r] = w.registers[r*Elements:][:end-first]
	}
}
