package plugin

import (
	"context"
	"slices"
	"time"

	"github.com/cage-qat/cage/sdk/client"
	"github.com/cage-qat/cage/sdk/spec"
)

// SearchedSite is a weight of which a quantizer searches the state, without its places.
type SearchedSite = client.PlacedSite

// Searcher runs the searches of a quantizer: it holds the process, starts it again when it has
// crashed or does not answer, and has the memory that both share. A crash costs time and changes no
// result, because a search reads one copy of the states and writes another. It is used by one
// goroutine at a time.
type Searcher struct {
	keeper
	layout client.SearchLayout
	sites  map[string]int // their numbers in the layout, by the names of the weights
	steps  int            // of the run
}

// The time limit of a search.
const (
	// DefaultSearchTimeout is the default.
	DefaultSearchTimeout = 10 * time.Minute
	// SearchTimeoutVariable is the environment variable that sets another.
	SearchTimeoutVariable = "CAGE_PLUGIN_SEARCH_TIMEOUT"
)

// NewSearcher starts the plugin of c once more and attaches the memory of the weights, for a run of
// so many steps. The process lives until Close, whatever becomes of c and ctx. Errors are [*Error].
func NewSearcher(ctx context.Context, c *Client, list []SearchedSite, steps int) (*Searcher, error) {
	s := &Searcher{layout: client.ArrangeSites(list), sites: map[string]int{}, steps: steps}
	for i, p := range s.layout.Sites {
		s.sites[p.Name] = i
	}
	s.keeper = keeper{origin: c, call: "search", attach: func(ctx context.Context, c *Client) error {
		return c.quantizer.AttachSites(ctx, s.memory.path(), s.layout)
	}}
	if err := s.open(ctx, s.layout.Bytes, SearchTimeoutVariable, DefaultSearchTimeout); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Searcher) site(weight string) client.PlacedSite { return s.layout.Sites[s.sites[weight]] }

// Weight returns where the weight is to be put before a search.
func (s *Searcher) Weight(weight string) []float32 {
	p := s.site(weight)
	return s.view(p.X, p.Shape)
}

// Trained returns where a trained parameter of the quantizer is to be put before a search.
func (s *Searcher) Trained(weight, parameter string) []float32 {
	p := s.site(weight)
	return s.named(p.Answer.Trained, parameter, p.OfTrained)
}

// State returns where a state tensor is to be put before a search. A search leaves it as it is.
func (s *Searcher) State(weight, state string) []float32 {
	p := s.site(weight)
	return s.named(p.Answer.State, state, p.Kept)
}

// Next returns where a state tensor is after a search.
func (s *Searcher) Next(weight, state string) []float32 {
	p := s.site(weight)
	return s.named(p.Answer.State, state, p.Next)
}

func (s *Searcher) named(list []spec.Tensor, name string, places []int64) []float32 {
	i := slices.IndexFunc(list, func(t spec.Tensor) bool { return t.Name == name })
	return s.view(places[i], list[i].Shape)
}

// Search finds the states of some weights after a step, from what was put into the memory. After a
// crash, and when there is no answer within the time limit, the plugin is started again, and the
// search begins again, twice at most. Errors are [*Error].
func (s *Searcher) Search(ctx context.Context, step int, weights []string) error {
	var sites []int
	var list []result
	for _, w := range weights {
		p := s.site(w)
		sites = append(sites, s.sites[w])
		for i, st := range p.Answer.State {
			list = append(list, result{p.Next[i], st.Shape, w, "the state " + st.Name})
		}
	}
	call := func(ctx context.Context, c *Client) error { return c.quantizer.Search(ctx, step, s.steps, sites) }
	return s.ask(ctx, step, call, list)
}
