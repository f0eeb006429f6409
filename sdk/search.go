package sdk

import (
	"fmt"
	"slices"
	"strings"
)

// SearchInput is what a search is given for one weight. Tensors are in row-major order. X,
// Trained and State can only be read: writing to them is a fault.
type SearchInput struct {
	// X is the weight.
	X []float32
	// Trained holds the trained parameters, if the quantizer is [Trainable].
	Trained map[string][]float32
	// State is what the search before has written to Next; zeros in the first.
	State map[string][]float32
	// Step is the number of steps that are done: 0 in the first search. Steps is that of the
	// whole run.
	Step, Steps int
	// Next is where the state goes. It has what an earlier search has left there.
	Next map[string][]float32
}

func (q *quantizerAnswer) searches(s Searcher, site Site) error {
	if site.Role != RoleWeight || site.Product != ProductForward {
		return nil
	}
	list, every, err := s.SearchState(site)
	if err != nil || len(list) == 0 {
		return err
	}
	if len(q.State) > 0 {
		return fmt.Errorf("InitState gives the state %s, and SearchState %s: let the search find all of it", q.State[0].Name, list[0].Name)
	}
	if every < 1 {
		return fmt.Errorf("SearchState says that a search follows after %d steps: want at least 1", every)
	}
	q.SearchEvery, q.State = every, slices.Clone(list)
	slices.SortFunc(q.State, func(x, y StateTensor) int { return strings.Compare(x.Name, y.Name) })
	for i, s := range q.State {
		if i > 0 && s.Name == q.State[i-1].Name {
			return fmt.Errorf("SearchState gives %q twice", s.Name)
		}
	}
	return nil
}
