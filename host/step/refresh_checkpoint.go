package step

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cage-qat/cage/host/cage"
)

// PendingRefresh describes a refresh whose results are not in place yet, as a
// checkpoint keeps it beside the tensors.
type PendingRefresh struct {
	Tensor string `json:"tensor"` // the trained tensor
	// Step is the update whose statistics it read, Due the one before which its
	// results are put in place.
	Step int `json:"step"`
	Due  int `json:"due"`
	// Failed says why there are no results; empty when there are.
	Failed string `json:"failed,omitempty"`
}

// refreshPrefix begins the names of results that are not in place yet.
const refreshPrefix = "refresh/"

// PendingRefreshes lists the refreshes whose results are not in place yet, and waits
// for them. The results are among the tensors of [Kernels.Download].
func (k *Kernels) PendingRefreshes(s *State) []PendingRefresh {
	var list []PendingRefresh
	for _, r := range s.beside.ordered() {
		<-r.done
		p := PendingRefresh{Tensor: k.plan.Rules[r.rule].Name, Step: r.step, Due: r.due}
		if r.failed != nil {
			p.Failed = r.failed.Error()
		}
		list = append(list, p)
	}
	return list
}

// ordered lists what is pending by rule.
func (b *beside) ordered() []*pendingRefresh {
	var list []*pendingRefresh
	for _, i := range slices.Sorted(maps.Keys(b.pending)) {
		list = append(list, b.pending[i])
	}
	return list
}

// pendingTensors are the results that are not in place yet.
func (k *Kernels) pendingTensors(s *State) []Tensor {
	var list []Tensor
	for _, r := range s.beside.ordered() {
		<-r.done
		if r.program == nil || r.failed != nil {
			continue
		}
		for _, o := range r.program.Outputs {
			list = append(list, Tensor{k.refreshName(r, o.Name), r.program.TypeOf(o.Value).Shape, r.out[o.Name]})
		}
	}
	return list
}

func (k *Kernels) refreshName(r *pendingRefresh, output string) string {
	return refreshPrefix + k.plan.Rules[r.rule].Name + "/" + output
}

// RestoreRefreshes gives a state the refreshes that were pending when a checkpoint was
// taken, with their results; load is asked for each tensor by name. A refresh that the
// plan does not have, or a tensor that is missing or of another shape, is an error.
func (k *Kernels) RestoreRefreshes(s *State, list []PendingRefresh, load func(name string) (Tensor, error)) error {
	for _, p := range list {
		i := slices.IndexFunc(k.plan.Rules, func(r cage.Rule) bool { return r.Name == p.Tensor })
		if i < 0 || k.splits[i] == nil || p.Step >= p.Due {
			return fmt.Errorf("a refresh of %s, from update %d to %d, is none of this run", p.Tensor, p.Step, p.Due)
		}
		r := &pendingRefresh{rule: i, step: p.Step, due: p.Due, program: k.splits[i].background, done: make(chan struct{})}
		close(r.done)
		if p.Failed != "" {
			r.failed = errors.New(p.Failed)
		} else if err := k.loadResults(r, load); err != nil {
			return err
		}
		s.beside.add(r)
	}
	return nil
}

func (k *Kernels) loadResults(r *pendingRefresh, load func(name string) (Tensor, error)) error {
	r.out = map[string][]float32{}
	if r.program == nil {
		return nil
	}
	for _, o := range r.program.Outputs {
		t, err := load(k.refreshName(r, o.Name))
		if err != nil {
			return err
		}
		if dims := r.program.TypeOf(o.Value).Shape; !slices.Equal(t.Dims, dims) {
			return fmt.Errorf("%s has shape %v, the run needs %v", k.refreshName(r, o.Name), t.Dims, dims)
		}
		r.out[o.Name] = t.Data
	}
	return nil
}
