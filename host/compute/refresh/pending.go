package refresh

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/recovered"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// Pending holds refreshes that goroutines compute, from copies in host memory, while training
// continues. The results are installed a fixed number of updates later, regardless of how long they
// take. The zero value holds none.
type Pending struct {
	refreshes map[string]*pendingRefresh // by tensor
	// memory keeps the copies of the states that the last refresh of a tensor read. The next
	// refresh reuses it, since allocating would lengthen the copying, which blocks steps.
	memory map[string]map[string][]float32
	// Failures has, for each tensor, how many of its latest refreshes have failed in a row. It is
	// stored in checkpoints.
	Failures map[string]int
	workers  sync.WaitGroup
	stopped  atomic.Bool
}

// A pendingRefresh is a refresh in progress. If it is delayed, its results are installed right
// before update due, even if they are ready earlier.
type pendingRefresh struct {
	target    *target
	step, due int
	program   *program.Program     // nil if the split has no background part
	apply     *program.Program     // the second part of the split; nil if there is none
	in        map[string][]float32 // by the names of the program's inputs
	out       map[string][]float32 // by the names of its outputs, once done
	failed    error                // of the program, once done
	done      chan struct{}
}

// Close prevents further computations from starting and waits for running ones, because a program
// cannot be interrupted.
func (p *Pending) Close() {
	p.stopped.Store(true)
	p.workers.Wait()
	p.refreshes, p.memory = nil, nil
}

// Arrives reports whether results have to be installed before update t.
func (p *Pending) Arrives(t int) bool {
	for _, r := range p.refreshes {
		if r.due <= t {
			return true
		}
	}
	return false
}

func (p *Pending) add(r *pendingRefresh) {
	if p.refreshes == nil {
		p.refreshes = map[string]*pendingRefresh{}
	}
	p.refreshes[r.target.Tensor] = r
}

func (p *Pending) sortedByTensor() []*pendingRefresh {
	return lists.Map(slices.Sorted(maps.Keys(p.refreshes)), func(name string) *pendingRefresh {
		return p.refreshes[name]
	})
}

// begin starts the refreshes of the given targets, in that order, from the states after the
// observation of update t.
func (r *Refresher) begin(pending *Pending, tensors stage.Tensors, targets []int, t int) error {
	list := make([]*pendingRefresh, len(targets))
	copying := errgroup.Group{}
	copying.SetLimit(r.dev.Workers())
	for n, i := range targets {
		s := &r.targets[i]
		if pending.refreshes[s.Tensor] != nil {
			copying.Wait() // copies in progress read the tensors
			return fmt.Errorf("refresh of %s: due at update %d while another is pending", s.Tensor, t)
		}
		p := &pendingRefresh{
			target: s, step: t, due: t + s.Delay, program: s.split.background, apply: s.split.apply,
			in: pending.memory[s.Tensor], done: make(chan struct{}),
		}
		list[n] = p
		copying.Go(func() error { return p.snapshot(tensors) })
	}
	if err := copying.Wait(); err != nil {
		return err
	}
	queue := make(chan *pendingRefresh, len(list))
	for _, p := range list {
		pending.add(p)
		queue <- p
	}
	close(queue)
	for range min(len(list), r.dev.Workers()) {
		pending.workers.Go(func() {
			for p := range queue {
				if !pending.stopped.Load() {
					p.compute(r.Execute)
				}
			}
		})
	}
	return nil
}

func (p *pendingRefresh) snapshot(tensors stage.Tensors) error {
	if p.program == nil {
		return nil
	}
	if p.in == nil {
		p.in = map[string][]float32{}
	}
	for _, input := range p.program.Inputs {
		if input.Name == spec.InputStep {
			continue
		}
		if p.in[input.Name] == nil {
			p.in[input.Name] = make([]float32, input.Type.Size())
		}
		state := tensors[p.target.state(input.Name)]
		if err := engine.DownloadInto(state, p.in[input.Name]); err != nil {
			return fmt.Errorf("refresh of %s: %w", p.target.Tensor, err)
		}
	}
	return nil
}

func (p *pendingRefresh) compute(execute Executor) {
	defer close(p.done)
	if p.program == nil {
		return
	}
	in := map[string]reference.Tensor{}
	for _, input := range p.program.Inputs {
		if input.Name == spec.InputStep {
			in[input.Name] = reference.Float(float64(p.step))
			continue
		}
		values := lists.Map(p.in[input.Name], func(x float32) float64 { return float64(x) })
		in[input.Name] = reference.Floats(values, input.Type.Shape...)
	}
	var out map[string]reference.Tensor
	p.failed = func() (err error) {
		defer recovered.Catch("refresh", p.program.Name, &err)
		out, err = execute(p.program, in)
		return err
	}()
	if p.failed != nil {
		return
	}
	p.out = make(map[string][]float32, len(out))
	for name, value := range out {
		p.out[name] = lists.Map(value.Floats, func(x float64) float32 { return float32(x) })
	}
}

// Install installs the results that are due before update t and waits for those that are not ready.
// It returns the names of the tensors whose refresh failed.
func (r *Refresher) Install(
	pending *Pending, tensors stage.Tensors, t int,
) (failed []string, err error) {
	outcomes := map[int]error{}
	for i := range r.targets {
		name := r.targets[i].Tensor
		p := pending.refreshes[name]
		if p == nil || p.due > t {
			continue
		}
		<-p.done
		delete(pending.refreshes, name)
		if pending.memory == nil {
			pending.memory = map[string]map[string][]float32{}
		}
		pending.memory[name] = p.in
		if outcomes[i] = p.failed; p.failed != nil {
			continue
		}
		if err := r.install(tensors, p); err != nil {
			return nil, err
		}
	}
	return r.countFailures(pending, outcomes)
}

func (r *Refresher) install(tensors stage.Tensors, p *pendingRefresh) error {
	if p.apply != nil { // first, as it reads the states that are replaced
		if err := r.apply(tensors, p); err != nil {
			return fmt.Errorf("refresh of %s: %w", p.target.Tensor, err)
		}
	}
	for name, values := range p.out {
		if strings.HasPrefix(name, passedPrefix) {
			continue
		}
		state := p.target.state(name)
		b, err := engine.UploadLike(tensors[state], values)
		if err != nil {
			return fmt.Errorf("refresh of %s: %w", p.target.Tensor, err)
		}
		tensors[state].Finalize()
		tensors[state] = b
	}
	return nil
}

// applyJob returns the job for p, the second part of a refresh. Its tensors have the names of the
// program's inputs and outputs, because several trained tensors share the compiled job.
func applyJob(p *program.Program) stage.Job {
	j := stage.Job{
		Tensor: "a refresh", Program: p,
		Inputs: map[string]string{}, Outputs: map[string]string{}, Donated: map[string]bool{},
	}
	for _, in := range p.Inputs {
		if in.Name == spec.InputStep {
			continue
		}
		j.Inputs[in.Name] = in.Name
		if _, replaced := p.Output(in.Name); replaced || strings.HasPrefix(in.Name, passedPrefix) {
			j.Donated[in.Name] = true
		}
	}
	for _, out := range p.Outputs {
		j.Outputs[out.Name] = out.Name
	}
	return j
}

// appliedTo reports which inputs of second parts, by their names in programs, are sharded by rows.
// States are sharded as everywhere; values passed from the first part are replicated.
func (r *Refresher) appliedTo() stage.Divided {
	if r.divided == nil {
		return nil
	}
	return func(name string, dims []int) bool {
		state, ok := strings.CutPrefix(name, spec.StatePrefix)
		return ok && r.divided(program.KindState.PartOf("", state), dims)
	}
}

// apply runs the second part of a refresh, which renews states that updates also write, on the
// device.
func (r *Refresher) apply(tensors stage.Tensors, p *pendingRefresh) error {
	second := p.apply
	own := stage.Tensors{}
	for _, in := range second.Inputs {
		if in.Name == spec.InputStep {
			continue
		}
		if !strings.HasPrefix(in.Name, passedPrefix) {
			// Use the current state, even if p.out holds its replacement.
			own[in.Name] = tensors[p.target.state(in.Name)]
			continue
		}
		b, err := engine.Upload(r.dev, p.out[in.Name], in.Type.Shape...)
		if err != nil {
			return err
		}
		defer b.Finalize()
		own[in.Name] = b
	}
	step := stage.Scalars{spec.InputStep: float32(p.step)}
	if _, err := r.appliers[second.Hash()].Run(own, step); err != nil {
		return err
	}
	for _, o := range second.Outputs {
		tensors[p.target.state(o.Name)] = own[o.Name]
	}
	return nil
}

// Record describes, in a checkpoint, a refresh whose results are not installed yet. The results
// themselves are stored as tensors of the checkpoint.
type Record struct {
	Tensor string `json:"tensor"` // the trained tensor
	// Step is the update whose statistics the refresh reads; Due is the update before which its
	// results are installed.
	Step int `json:"step"`
	Due  int `json:"due"`
	// Failed is the reason why there are no results; it is empty if there are results.
	Failed string `json:"failed,omitempty"`
	// Fault marks failures caused by the executor rather than by the matrices.
	Fault bool `json:"fault,omitempty"`
}

// Result is a tensor computed by a pending refresh.
type Result struct {
	Name string // name in a checkpoint
	Dims []int
	Data []float32
}

// Records waits for all pending refreshes to finish and describes them.
func (p *Pending) Records() []Record {
	var list []Record
	for _, r := range p.sortedByTensor() {
		<-r.done
		c := Record{Tensor: r.target.Tensor, Step: r.step, Due: r.due}
		if r.failed != nil {
			c.Failed, c.Fault = r.failed.Error(), isFault(r.failed)
		}
		list = append(list, c)
	}
	return list
}

// Results waits for all pending refreshes to finish and returns their results.
func (p *Pending) Results() []Result {
	var list []Result
	for _, r := range p.sortedByTensor() {
		<-r.done
		if r.program == nil || r.failed != nil {
			continue
		}
		for _, o := range r.program.Outputs {
			list = append(list, Result{r.name(o.Name), r.program.TypeOf(o.Value).Shape, r.out[o.Name]})
		}
	}
	return list
}

// recordedError is the error of a refresh as read from a checkpoint.
type recordedError struct {
	text  string
	fault bool
}

func (e recordedError) Error() string { return e.text }

// isFault reports whether an error is a panic of the executor, in this process or recorded in a
// checkpoint.
func isFault(err error) bool {
	_, caught := errors.AsType[*recovered.PanicError](err)
	recorded, _ := errors.AsType[recordedError](err)
	return caught || recorded.fault
}

func (p *pendingRefresh) name(output string) string {
	return "refresh/" + p.target.Tensor + "/" + output
}

// Restore adds the refreshes that were pending when a checkpoint was written. load returns their
// results by name and dimensions. It is an error if this training run does not have such a refresh.
func (r *Refresher) Restore(
	pending *Pending, list []Record, load func(name string, dims []int) ([]float32, error),
) error {
	for _, c := range list {
		i := slices.IndexFunc(r.targets, func(s target) bool { return s.Tensor == c.Tensor })
		if i < 0 || r.targets[i].split == nil || c.Step >= c.Due {
			return fmt.Errorf("the checkpoint has an unexpected refresh of %s, from update %d to %d",
				c.Tensor, c.Step, c.Due)
		}
		s := &r.targets[i]
		p := &pendingRefresh{
			target: s, step: c.Step, due: c.Due,
			program: s.split.background, apply: s.split.apply, done: make(chan struct{}),
		}
		close(p.done)
		if c.Failed != "" {
			p.failed = recordedError{c.Failed, c.Fault}
		} else if p.program != nil {
			p.out = map[string][]float32{}
			for _, o := range p.program.Outputs {
				var err error
				if p.out[o.Name], err = load(p.name(o.Name), p.program.TypeOf(o.Value).Shape); err != nil {
					return err
				}
			}
		}
		pending.add(p)
	}
	return nil
}
