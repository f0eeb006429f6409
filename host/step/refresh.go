package step

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/lower"
	"github.com/cage-qat/cage/internal/guard"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// refresh renews the preconditioners that are due at this update. First the results
// that are due of refreshes beside the steps are put in place. Then all optimizers
// observe the gradient, and the due refresh programs run on the executor, side by
// side: at once, or beside the steps that follow where the plan says so. It reports
// whether it observed, as the update must not observe again then.
func (k *Kernels) refresh(s *State, q *quantizedWeights, grads []*engine.Buffer, set Settings, res *Result) (bool, error) {
	if err := k.install(s, set.Step, res); err != nil {
		return false, err
	}
	due := k.due(set.Step)
	if len(due) == 0 {
		return false, nil
	}
	if err := k.observe(s, q, grads, set, res); err != nil {
		return false, err
	}
	var now, later []int
	for _, i := range k.longestFirst(due) {
		// A first refresh is never late: there is nothing in its place.
		if k.splits[i] != nil && due[i] == k.plan.Rules[i].Optimizer.Refresh {
			later = append(later, i)
		} else {
			now = append(now, i)
		}
	}
	if err := k.begin(s, later, set.Step); err != nil {
		return true, err
	}
	return true, k.runRefreshes(s, now, due, set.Step, res)
}

// runRefreshes executes refresh programs of these rules, in that order, and waits for
// them.
func (k *Kernels) runRefreshes(s *State, rules []int, due map[int]*program.Program, t int, res *Result) error {
	work := errgroup.Group{}
	work.SetLimit(runtime.GOMAXPROCS(0))
	outcomes := make([]error, len(rules))
	for n, i := range rules {
		work.Go(func() (err error) {
			outcomes[n], err = k.runRefresh(s, i, due[i], t)
			return err
		})
	}
	if err := work.Wait(); err != nil {
		return err
	}
	failed := map[int]error{}
	for n, i := range rules {
		failed[i] = outcomes[n]
	}
	return k.countFailures(failed, res)
}

// toleratedFailures is the number of refreshes in a row of one tensor that may fail,
// as in distributed Shampoo.
const toleratedFailures = 3

// countFailures notes which refreshes failed, by rule; nil for one that did not. The
// tensors keep the preconditioners that they have. Too many in a row end the training, as
// does one that the executor is to blame for.
func (k *Kernels) countFailures(failed map[int]error, res *Result) error {
	for _, i := range slices.Sorted(maps.Keys(failed)) {
		err := failed[i]
		if err == nil {
			delete(k.failures, i)
			continue
		}
		var fault *guard.PanicError
		if errors.As(err, &fault) {
			return fmt.Errorf("refresh of %s: %w", k.plan.Rules[i].Name, err)
		}
		k.failures[i]++
		res.FailedRefreshes = append(res.FailedRefreshes, k.plan.Rules[i].Name)
		if k.failures[i] > toleratedFailures {
			return fmt.Errorf("refresh of %s failed %d times in a row: %w", k.plan.Rules[i].Name, k.failures[i], err)
		}
	}
	return nil
}

// due lists the refresh programs of update t by the position of their rule.
func (k *Kernels) due(t int) map[int]*program.Program {
	due := map[int]*program.Program{}
	for i, r := range k.plan.Rules {
		switch now, first := r.Optimizer.Due.At(t); {
		case now && first:
			due[i] = r.Optimizer.FirstRefresh
		case now:
			due[i] = r.Optimizer.Refresh
		}
	}
	return due
}

// longestFirst orders the rules whose refresh programs are due by the work that they
// have, about: so that the last ones to run, while processors become idle, are short.
func (k *Kernels) longestFirst(due map[int]*program.Program) []int {
	work := func(i int) (sum int64) {
		for _, st := range k.plan.Rules[i].Optimizer.State {
			if rank := len(st.Shape); rank > 0 { // factorizations take size·length of the last axis
				sum += program.FloatType(st.Shape...).Size() * int64(st.Shape[rank-1])
			}
		}
		return sum
	}
	return slices.SortedFunc(maps.Keys(due), func(i, j int) int {
		return cmp.Or(cmp.Compare(work(j), work(i)), cmp.Compare(i, j))
	})
}

// observe runs the observation of every optimizer that has one.
func (k *Kernels) observe(s *State, q *quantizedWeights, grads []*engine.Buffer, set Settings, res *Result) error {
	u, err := k.observation(k.form(q, set))
	if err != nil || u.exec == nil {
		return err
	}
	scalars, err := engine.Upload(k.dev, k.scalars(set, res.GradNorm), len(cage.Scalars))
	if err != nil {
		return err
	}
	in, _ := u.inputs(s, q, grads)
	out, err := u.exec.Run(append(in, scalars), nil)
	scalars.Finalize()
	if err != nil {
		return err
	}
	for i, rule := range u.rules {
		if rule.Optimizer.Observe == nil {
			continue
		}
		for _, o := range rule.Optimizer.Observe.Outputs {
			j := stateIndex(rule, o.Name)
			s.Optimizer[i][j].Finalize()
			s.Optimizer[i][j], out = out[0], out[1:]
		}
	}
	return nil
}

// observation compiles the observations of all rules, in one form of the correction,
// which in the coupled form is part of the gradient.
func (k *Kernels) observation(form cage.Form) (*update, error) {
	if u, ok := k.observations[form]; ok {
		return u, nil
	}
	rules := slices.Clone(k.plan.Rules)
	observes := false
	for i := range rules {
		if rules[i].Quantizer != nil && form == cage.Coupled {
			rules[i].Form = form
		}
		observes = observes || rules[i].Optimizer.Observe != nil
	}
	u := k.newUpdate(rules)
	if observes {
		specs, build := k.plan.rulesGraph(u.rules, lowerObservation)
		var err error
		if u.exec, err = k.dev.Compile("observe", specs, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			var out []*graph.Node
			for i, named := range build(in) {
				if o := u.rules[i].Optimizer.Observe; o != nil {
					for _, output := range o.Outputs {
						out = append(out, named[output.Name])
					}
				}
			}
			return out
		}); err != nil {
			return nil, err
		}
	}
	k.observations[form] = u
	return u, nil
}

// lowerObservation is the UpdateFunc of the observation alone.
func lowerObservation(rule cage.Rule, in map[string]*graph.Node) map[string]*graph.Node {
	p, err := rule.ObserveProgram()
	if err != nil {
		panic(err)
	}
	if p == nil {
		return nil
	}
	return lower.Lower(in[cage.InputX].Graph(), p, programArgs(p, in))
}

// runRefresh executes a refresh program on the state of rule i and puts the results
// in its place. It touches nothing of other rules. A program that fails, as a
// factorization does that finds no eigenvalues, is reported in failed and changes
// nothing.
func (k *Kernels) runRefresh(s *State, i int, p *program.Program, t int) (failed, err error) {
	rule := k.plan.Rules[i]
	memory := scratches.Get().(*scratch)
	defer scratches.Put(memory)
	memory.reserve(rule.Optimizer.State)
	in := map[string]reference.Tensor{sdk.InputStep: reference.Float(float64(t))}
	for j, st := range rule.Optimizer.State {
		single := memory.single[:program.FloatType(st.Shape...).Size()]
		if err := engine.DownloadInto(s.Optimizer[i][j], single); err != nil {
			return nil, fmt.Errorf("refresh of %s: %w", rule.Name, err)
		}
		in[sdk.StatePrefix+st.Name] = reference.Floats(memory.widen(single), st.Shape...)
	}
	out, failed := k.execute.run(p, in)
	if failed != nil {
		return failed, nil
	}
	for name, value := range out {
		j := stateIndex(rule, name)
		b, err := engine.Upload(k.dev, memory.narrow(value.Floats), rule.Optimizer.State[j].Shape...)
		if err != nil {
			return nil, fmt.Errorf("refresh of %s: %w", rule.Name, err)
		}
		s.Optimizer[i][j].Finalize()
		s.Optimizer[i][j] = b
	}
	return nil, nil
}

// stateIndex is the position of the state tensor that an output names.
func stateIndex(rule cage.Rule, output string) int {
	name := strings.TrimPrefix(output, sdk.StatePrefix)
	return slices.IndexFunc(rule.State(), func(t sdk.StateTensor) bool { return t.Name == name })
}

// scratch is the memory of one refresh outside of its program, used again for the next
// one: fresh memory takes longer than filling it.
type scratch struct {
	single []float32
	double []float64
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// reserve makes room for the whole state of a rule.
func (b *scratch) reserve(state []sdk.StateTensor) {
	total := 0
	for _, st := range state {
		n := int(program.FloatType(st.Shape...).Size())
		total += n
		if len(b.single) < n {
			b.single = make([]float32, n)
		}
	}
	if cap(b.double) < total {
		b.double = make([]float64, 0, total)
	}
	b.double = b.double[:0]
}

// widen copies to binary64.
func (b *scratch) widen(single []float32) []float64 {
	at := len(b.double)
	b.double = b.double[:at+len(single)]
	out := b.double[at:]
	for i, x := range single {
		out[i] = float64(x)
	}
	return out
}

// narrow rounds to binary32. Its result holds until the next call.
func (b *scratch) narrow(v []float64) []float32 {
	out := b.single[:len(v)]
	for i, x := range v {
		out[i] = float32(x)
	}
	return out
}
