package step

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/gomlx/gomlx/core/graph"
	"golang.org/x/sync/errgroup"

	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/lower"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// pendingRefresh is a refresh that is computed beside the steps: by a goroutine, from
// copies in host memory. Its results are put in place before the update due, however
// early they are there.
type pendingRefresh struct {
	rule, step, due int
	program         *program.Program     // nil: nothing is to be computed
	in              map[string][]float32 // by the names of states
	out             map[string][]float32 // by the names of the program's outputs, once done
	failed          error                // of the program, once done
	done            chan struct{}
}

// beside are the refreshes of a state that are computed beside the steps.
type beside struct {
	pending map[int]*pendingRefresh // by rule
	// memory keeps the copies that the last refresh of a rule read, for the next
	// one: the steps wait while they are filled, and fresh memory would take longer.
	memory  map[int]map[string][]float32
	workers sync.WaitGroup
	stopped atomic.Bool
}

// close ends the computations: those that have begun are waited for, as a program
// cannot be interrupted.
func (b *beside) close() {
	b.stopped.Store(true)
	b.workers.Wait()
	b.pending, b.memory = nil, nil
}

// add notes a refresh, of which there is none of that rule.
func (b *beside) add(r *pendingRefresh) {
	if b.pending == nil {
		b.pending = map[int]*pendingRefresh{}
	}
	b.pending[r.rule] = r
}

// arrives tells whether results are to be put in place before update t.
func (b *beside) arrives(t int) bool {
	for _, r := range b.pending {
		if r.due <= t {
			return true
		}
	}
	return false
}

// splitRefreshes cuts the refresh programs whose results are put in place late.
func (k *Kernels) splitRefreshes() error {
	for i, rule := range k.plan.Rules {
		delay := k.plan.RefreshDelay[rule.Name]
		if delay == 0 || rule.Optimizer.Refresh == nil {
			continue
		}
		err := CheckDelay(rule.Optimizer, delay)
		if err == nil {
			k.splits[i], err = splitRefresh(rule.Optimizer)
		}
		if err != nil {
			return fmt.Errorf("step: %s: %w", rule.Name, err)
		}
	}
	return nil
}

// begin starts the refreshes of these rules, in that order, with the state that the
// observation of update t left.
func (k *Kernels) begin(s *State, rules []int, t int) error {
	list := make([]*pendingRefresh, len(rules))
	copying := errgroup.Group{}
	copying.SetLimit(runtime.GOMAXPROCS(0))
	for n, i := range rules {
		if s.beside.pending[i] != nil {
			return fmt.Errorf("refresh of %s: due at update %d while another one is under way", k.plan.Rules[i].Name, t)
		}
		r := &pendingRefresh{
			rule: i, step: t, due: t + k.plan.RefreshDelay[k.plan.Rules[i].Name], program: k.splits[i].background,
			in: s.beside.memory[i], done: make(chan struct{}),
		}
		if r.in == nil {
			r.in = map[string][]float32{}
		}
		list[n] = r
		copying.Go(func() error { return k.snapshot(s, r) })
	}
	if err := copying.Wait(); err != nil {
		return err
	}
	queue := make(chan *pendingRefresh, len(list))
	for _, r := range list {
		s.beside.add(r)
		queue <- r
	}
	close(queue)
	for range min(len(list), runtime.GOMAXPROCS(0)) {
		s.beside.workers.Go(func() {
			for r := range queue {
				if !s.beside.stopped.Load() {
					r.compute(k.execute, k.plan.Rules[r.rule].Optimizer.State)
				}
			}
		})
	}
	return nil
}

// snapshot copies what the program of a refresh reads to host memory.
func (k *Kernels) snapshot(s *State, r *pendingRefresh) error {
	if r.program == nil {
		return nil
	}
	rule := k.plan.Rules[r.rule]
	for _, input := range r.program.Inputs {
		if input.Name == sdk.InputStep {
			continue
		}
		if r.in[input.Name] == nil {
			r.in[input.Name] = make([]float32, input.Type.Size())
		}
		if err := engine.DownloadInto(s.Optimizer[r.rule][stateIndex(rule, input.Name)], r.in[input.Name]); err != nil {
			return fmt.Errorf("refresh of %s: %w", rule.Name, err)
		}
	}
	return nil
}

// compute executes the program.
func (r *pendingRefresh) compute(execute executor, state []sdk.StateTensor) {
	defer close(r.done)
	if r.program == nil {
		return
	}
	memory := scratches.Get().(*scratch)
	defer scratches.Put(memory)
	memory.reserve(state)
	in := map[string]reference.Tensor{}
	for _, input := range r.program.Inputs {
		if input.Name == sdk.InputStep {
			in[input.Name] = reference.Float(float64(r.step))
			continue
		}
		in[input.Name] = reference.Floats(memory.widen(r.in[input.Name]), input.Type.Shape...)
	}
	out, err := execute.run(r.program, in)
	if err != nil {
		r.failed = err
		return
	}
	r.out = map[string][]float32{}
	for name, value := range out {
		single := make([]float32, len(value.Floats))
		for i, x := range value.Floats {
			single[i] = float32(x)
		}
		r.out[name] = single
	}
}

// install puts the results in place that are due before update t, and waits for those
// that are not there yet.
func (k *Kernels) install(s *State, t int, res *Result) error {
	failed := map[int]error{}
	for _, i := range slices.Sorted(maps.Keys(s.beside.pending)) {
		r := s.beside.pending[i]
		if r.due > t {
			continue
		}
		<-r.done
		delete(s.beside.pending, i)
		if s.beside.memory == nil {
			s.beside.memory = map[int]map[string][]float32{}
		}
		s.beside.memory[i] = r.in
		if failed[i] = r.failed; r.failed != nil {
			continue
		}
		if err := k.put(s, r); err != nil {
			return fmt.Errorf("refresh of %s: %w", k.plan.Rules[i].Name, err)
		}
	}
	return k.countFailures(failed, res)
}

// put puts the results of a refresh in place.
func (k *Kernels) put(s *State, r *pendingRefresh) error {
	if k.splits[r.rule].apply != nil { // first, as it reads what is replaced
		if err := k.apply(s, r); err != nil {
			return err
		}
	}
	rule := k.plan.Rules[r.rule]
	for name, values := range r.out {
		if strings.HasPrefix(name, handedPrefix) {
			continue
		}
		j := stateIndex(rule, name)
		b, err := engine.Upload(k.dev, values, rule.Optimizer.State[j].Shape...)
		if err != nil {
			return err
		}
		s.Optimizer[r.rule][j].Finalize()
		s.Optimizer[r.rule][j] = b
	}
	return nil
}

// apply renews the states that updates write, too, on the device.
func (k *Kernels) apply(s *State, r *pendingRefresh) error {
	p, rule := k.splits[r.rule].apply, k.plan.Rules[r.rule]
	exec, err := k.applier(p)
	if err != nil {
		return err
	}
	in, donate := make([]*engine.Buffer, len(p.Inputs)), make([]bool, len(p.Inputs))
	var uploaded []*engine.Buffer
	for n, input := range p.Inputs {
		var values []float32
		switch {
		case strings.HasPrefix(input.Name, handedPrefix):
			values = r.out[input.Name]
		case input.Name == sdk.InputStep:
			values = []float32{float32(r.step)}
		default: // as it is, also where r.out has what will replace it
			in[n] = s.Optimizer[r.rule][stateIndex(rule, input.Name)]
			_, donate[n] = p.Output(input.Name)
			continue
		}
		donate[n] = true
		if in[n], err = engine.Upload(k.dev, values, input.Type.Shape...); err != nil {
			engine.FinalizeAll(uploaded...)
			return err
		}
		uploaded = append(uploaded, in[n])
	}
	out, err := exec.Run(in, donate)
	if err != nil {
		engine.FinalizeAll(uploaded...)
		return err
	}
	for n, o := range p.Outputs {
		s.Optimizer[r.rule][stateIndex(rule, o.Name)] = out[n]
	}
	return nil
}

// applier compiles the second part of a refresh, once for all tensors that have it.
func (k *Kernels) applier(p *program.Program) (*engine.Executable, error) {
	return k.once("refresh "+p.Hash(), func() ([]engine.Spec, engine.BuildFunc) {
		var specs []engine.Spec
		for _, input := range p.Inputs {
			specs = append(specs, engine.Spec{Name: input.Name, Shape: floats(input.Type.Shape...)})
		}
		return specs, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			return lower.Outputs(g, p, in)
		}
	})
}
