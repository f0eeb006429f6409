package sdk

import (
	"fmt"
	"slices"
	"strings"
)

// Searcher is a quantizer of weights whose state no program can compute: a codebook by
// k-means, codes by beam search (AQLM) or along a trellis (QTIP), what somebody's C++ finds.
// The plugin's own process finds it, on memory that it shares with the host; Quantize stays a
// program, which reads [Site.State]. So gradients, the correction, evaluation and export are
// those of every other quantizer, and only the search needs the process.
//
// State may be all of the result: codes and codebooks that Quantize decodes, or Q(x) itself
// and a mask. A search sees trained parameters, but does not change them.
//
// Prefer [Stateful] where a program can do it. A search needs Linux, and its process must
// live as long as the training does. Evaluation, export and what the model becomes later
// need neither.
type Searcher interface {
	// SearchState lists the state tensors of a site, in any order, and says after how many
	// steps each search follows; at least 1. For a site without a search return none.
	// It is asked for weights in the forward product only: elsewhere there is no state.
	SearchState(site Site) (state []StateTensor, every int, err error)
	// Search finds the state of one site: before the first step, from what the weights
	// start with, and then after every so many steps, from what the step has made of them.
	// It is called for several sites at the same time, and must keep nothing anywhere but in
	// the state: after a crash the process is started again and gets the same search once
	// more. All of Next must be written.
	Search(in SearchInput, site Site) error
}

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
