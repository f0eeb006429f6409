package plugin

import (
	"context"
	"time"

	"github.com/cage-qat/cage/sdk/client"
)

// SearchedSite is a weight whose state a quantizer searches. [NewSearcher] sets its offsets.
type SearchedSite = client.PlacedSite

// Searcher runs the searches of a quantizer in the plugin's process. A search reads one copy of the
// states and writes another, so that it can be repeated after a crash. A Searcher is not safe for
// concurrent use.
type Searcher struct {
	keeper
	layout client.SearchLayout
	sites  map[string]int // indices of the sites in the layout, by the name of the weight
	steps  int            // total of the run
}

// Time limit of a search.
const (
	// DefaultSearchTimeout is the default limit.
	DefaultSearchTimeout = 10 * time.Minute
	// SearchTimeoutVariable is an environment variable that overrides the default.
	SearchTimeoutVariable = "CAGE_PLUGIN_SEARCH_TIMEOUT"
)

// NewSearcher starts another process of c's plugin and shares memory for the weights with it. steps
// is the number of steps of the run. The process runs until Close, even if c is closed or ctx
// canceled. Errors are [*Error].
func NewSearcher(ctx context.Context, c *Client, list []SearchedSite,
	steps int) (*Searcher, error) {
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

// Weight returns the buffer for the weight, to be filled before a search.
func (s *Searcher) Weight(weight string) []float32 {
	p := s.site(weight)
	return s.view(p.X, p.Shape)
}

// Trained returns the buffer for a trained parameter, to be filled before a search.
func (s *Searcher) Trained(weight, parameter string) []float32 {
	p := s.site(weight)
	return s.named(p.Answer.Trained, parameter, p.TrainedAt)
}

// State returns the buffer for a state tensor, to be filled before a search. The search does not
// change it.
func (s *Searcher) State(weight, state string) []float32 {
	p := s.site(weight)
	return s.named(p.Answer.State, state, p.StateAt)
}

// Next returns the buffer that holds the new value of a state tensor after a search.
func (s *Searcher) Next(weight, state string) []float32 {
	p := s.site(weight)
	return s.named(p.Answer.State, state, p.NextAt)
}

// Search computes new states for the given weights from the contents of the buffers. It is called
// after a step. After a crash or a timeout, it restarts the plugin and repeats the search, at most
// twice. Errors are [*Error].
func (s *Searcher) Search(ctx context.Context, step int, weights []string) error {
	var sites []int
	var list []result
	for _, w := range weights {
		p := s.site(w)
		sites = append(sites, s.sites[w])
		for i, st := range p.Answer.State {
			list = append(list, result{p.NextAt[i], st.Shape, w, "the state " + st.Name})
		}
	}
	call := func(ctx context.Context, c *Client) error {
		return c.quantizer.Search(ctx, step, s.steps, sites)
	}
	return s.ask(ctx, step, call, list)
}
