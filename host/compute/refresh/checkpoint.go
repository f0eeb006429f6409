package refresh

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cage-qat/cage/internal/guard"
)

// Record describes, in a checkpoint, a refresh whose results were not in place yet. The
// results themselves are among the checkpoint's tensors.
type Record struct {
	Tensor string `json:"tensor"` // the trained tensor
	// Step is the update whose statistics the refresh read; Due is the update before
	// which its results are put in place.
	Step int `json:"step"`
	Due  int `json:"due"`
	// Failed says why there are no results; empty when there are.
	Failed string `json:"failed,omitempty"`
	// Fault says that this was the fault of the executor and not of the matrices.
	Fault bool `json:"fault,omitempty"`
}

// Result is a tensor computed by a pending refresh.
type Result struct {
	Name string // name in a checkpoint
	Dims []int
	Data []float32
}

// Records waits for the refreshes whose results are not in place yet, and describes them.
func (p *Pending) Records() []Record {
	var list []Record
	for _, r := range p.ordered() {
		<-r.done
		c := Record{Tensor: r.subject.Tensor, Step: r.step, Due: r.due}
		if r.failed != nil {
			c.Failed, c.Fault = r.failed.Error(), isFault(r.failed)
		}
		list = append(list, c)
	}
	return list
}

// Results waits for the results that are not in place yet, and returns them.
func (p *Pending) Results() []Result {
	var list []Result
	for _, r := range p.ordered() {
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

// recordedError is the error of a refresh, read from a checkpoint.
type recordedError struct {
	text  string
	fault bool
}

func (e recordedError) Error() string { return e.text }

// isFault reports whether an error is a panic of the executor, in this process or before a checkpoint.
func isFault(err error) bool {
	var caught *guard.PanicError
	var recorded recordedError
	return errors.As(err, &caught) || errors.As(err, &recorded) && recorded.fault
}

// Failures returns, for each tensor, how many of its last refreshes failed in a row, for
// a checkpoint.
func (p *Pending) Failures() map[string]int { return p.failures }

// RestoreFailures restores from a checkpoint what [Pending.Failures] returned.
func (p *Pending) RestoreFailures(failures map[string]int) { p.failures = failures }

// name returns the name of a result in checkpoints.
func (p *pendingRefresh) name(output string) string {
	return "refresh/" + p.subject.Tensor + "/" + output
}

// Restore adds the refreshes that were pending when a checkpoint was taken, with their
// results, each of which load returns for its name and dimensions. It is an error if the
// training does not have such a refresh.
func (r *Refresher) Restore(pending *Pending, list []Record, load func(name string, dims []int) ([]float32, error)) error {
	for _, c := range list {
		i := slices.IndexFunc(r.subjects, func(s subject) bool { return s.Tensor == c.Tensor })
		if i < 0 || r.subjects[i].split == nil || c.Step >= c.Due {
			return fmt.Errorf("a refresh of %s, from update %d to %d, is none of this run", c.Tensor, c.Step, c.Due)
		}
		s := &r.subjects[i]
		p := &pendingRefresh{subject: s, step: c.Step, due: c.Due, program: s.split.background, done: make(chan struct{})}
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
