package tile

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/cage-qat/cage/internal/guard"
	"github.com/cage-qat/cage/sdk/program"
)

// executor is the name of this one in errors.
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
	body    []func() // of the workers beside the caller

	mu      sync.Mutex
	advance sync.Cond // a call has finished a phase, or failed
	failed  error     // the first panic of a run
}

// state is what a call has computed so far.
type state struct {
	env []float32
	// folds are the reductions of all parts, reduction by reduction; a part is as many
	// tiles as a unit.
	folds []float64
	parts int
	left  []atomic.Int32 // units of each phase that are not done
	done  int            // phases, under the runner's lock
}

// unit is a part of the tensors in one phase.
type unit struct{ call, phase, part int }

// partTiles are the tiles of a part: enough that taking one costs nothing. Sums of parts
// are added in order, so the number is part of what a sum is.
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
		r.body = append(r.body, func() {
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
		if err := CheckMemory(calls[i].Kernel.p, calls[i].Inputs, calls[i].Outputs); err != nil {
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
	r.divide()
	r.next.Store(0)
	helpers := min(len(r.body), len(r.units)-1)
	for i := range max(0, helpers) {
		r.running.Add(1)
		go r.body[i]()
	}
	r.work(&r.workers[0])
	r.running.Wait()
	r.forget()
	return r.failed
}

// forget drops the caller's slices.
func (r *Runner) forget() {
	for i := range r.workers {
		clear(r.workers[i].slots)
	}
}

// begin prepares the state of a call; without tensors it is all there is to do.
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
	for i, place := range c.Kernel.outputs {
		if place.tensor < 0 {
			c.Outputs[i][0] = s.env[place.scalar]
		}
	}
}

// divide lists the units in the order in which workers take them. The first phase of the next call comes before the second phase of this
// one, so that workers hardly wait for the end of a phase, and the tensors of this call are still in a
// cache for its second phase.
func (r *Runner) divide() {
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

// work takes units until there are none, or one panicked. A unit waits only for units that were taken before it, so
// that somebody is working on them.
func (r *Runner) work(w *worker) {
	for {
		at := int(r.next.Add(1)) - 1
		if at >= len(r.units) {
			return
		}
		u := &r.units[at]
		if !r.ready(u) {
			return
		}
		if err := r.do(w, u); err != nil {
			r.fail(err)
			return
		}
	}
}

// ready waits for what a unit needs. It reports false when the run has failed.
func (r *Runner) ready(u *unit) bool {
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

// do executes a unit.
func (r *Runner) do(w *worker, u *unit) (err error) {
	s := &r.states[u.call]
	defer guard.Catch(executor, r.calls[u.call].Kernel.p.Name, &err)
	w.run(&r.calls[u.call], s, u)
	if s.left[u.phase].Add(-1) == 0 {
		r.finish(u.call, u.phase)
	}
	return nil
}

// fail ends the run: whoever waits for a unit that will not be done is woken.
func (r *Runner) fail(err error) {
	r.mu.Lock()
	if r.failed == nil {
		r.failed = err
	}
	r.mu.Unlock()
	r.advance.Broadcast()
}

// finish ends a phase of a call: reductions are folded in the order of parts.
func (r *Runner) finish(call, phase int) {
	c, s := &r.calls[call], &r.states[call]
	k := c.Kernel
	for i, d := range k.reductions {
		if d.phase != phase {
			continue
		}
		total := float64(neutral(d.op))
		for _, v := range s.folds[i*s.parts : (i+1)*s.parts] {
			total = join(d.op, total, v)
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

// CheckMemory returns an error if slices do not fit the inputs and outputs of a program,
// or if an output takes the place of an input with another name.
func CheckMemory(p *program.Program, inputs, outputs [][]float32) error {
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
	sums      []lanes
}

// run executes a unit.
func (w *worker) run(c *Call, s *state, u *unit) {
	k := c.Kernel
	w.reserve(k)
	for i, d := range k.reductions {
		if d.phase == u.phase {
			s.folds[i*s.parts+u.part] = float64(neutral(d.op))
		}
	}
	first := u.part * partTiles * Elements
	for at := first; at < min(first+partTiles*Elements, k.size); at += Elements {
		for i, d := range k.reductions {
			w.sums[i].reset(d.op)
		}
		w.place(c, at)
		interpret(k.phases[u.phase], w.slots, s.env, w.sums)
		for i, d := range k.reductions {
			if d.phase == u.phase {
				total := &s.folds[i*s.parts+u.part]
				*total = join(d.op, *total, w.sums[i].fold(d.op))
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
		w.sums = make([]lanes, len(k.reductions))
	}
}

// place points the slots to the tile that begins at an element.
func (w *worker) place(c *Call, first int) {
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
