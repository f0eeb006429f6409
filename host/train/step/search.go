package step

import (
	"context"
	"fmt"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/sdk/program"
)

// Search computes states of the quantizers of some weights.
type Search interface {
	External
	// Search computes the quantizer states of weights after a step; 0 means before the first step.
	// After an error it can be called again.
	Search(ctx context.Context, step int, weights []string) error
}

func (p *Plan) searched(step int) (list []cage.Rule) {
	for _, r := range p.Rules {
		if q := r.Quantizer; q != nil && q.SearchEvery > 0 && step%q.SearchEvery == 0 {
			list = append(list, r)
		}
	}
	return list
}

// Search runs the quantizer searches that are due after this step, unless they have run already.
// After an error the state is unchanged, and still Unsearched.
func (c *Compiled) Search(ctx context.Context, s *State, step int) error {
	if !s.Unsearched {
		return nil
	}
	rules := c.plan.searched(step)
	var searches []Search
	weights := map[Search][]string{}
	for _, r := range rules {
		search := c.plan.Search[r.Name]
		if search == nil {
			return fmt.Errorf("step: the quantizer of %s searches, which is possible only in "+
				"training, where its process runs", r.Name)
		}
		if weights[search] == nil {
			searches = append(searches, search)
		}
		weights[search] = append(weights[search], r.Name)
		if err := give(search, r.Name, s.Tensors); err != nil {
			return err
		}
	}
	for _, search := range searches {
		if err := search.Search(ctx, step, weights[search]); err != nil {
			return err
		}
	}
	found := stage.Tensors{}
	for _, r := range rules {
		_, out := c.plan.Search[r.Name].Buffers(r.Name)
		for _, st := range r.Quantizer.State {
			name := program.KindQuantizerState.PartOf(r.Name, st.Name)
			b, err := engine.Upload(c.dev, out[name], st.Shape...)
			if err != nil {
				found.Finalize()
				return err
			}
			found[name] = b
		}
	}
	s.wait()
	for name, b := range found {
		s.Tensors[name].Finalize()
		s.Tensors[name] = b
	}
	s.Unsearched = false
	return nil
}

// initSearched initializes the states computed by searches with zeros, then runs a first search.
func (c *Compiled) initSearched(ctx context.Context, s *State) error {
	for _, r := range c.plan.searched(0) {
		for _, st := range r.Quantizer.State {
			zeros, err := engine.Zeros(c.dev, st.Shape...)
			if err != nil {
				return err
			}
			s.Tensors[program.KindQuantizerState.PartOf(r.Name, st.Name)] = zeros
		}
	}
	s.Unsearched = true
	return c.Search(ctx, s, 0)
}
