package plugin

import (
	"context"
	"time"

	"github.com/cage-qat/cage/sdk/client"
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

// NewSearcher starts the plugin of c once more and hands it the memory of the weights, for a run of
// so many steps. The process lives until Close, whatever becomes of c and ctx. Errors are [*Error].
func NewSearcher(ctx context.Context, c *Client, list []SearchedSite, steps int) (*Searcher, error) {
	s := &Searcher{layout: client.ArrangeSites(list), sites: map[string]int{}, steps: steps}
	spans := map[place]span{}
	for i, p := range s.layout.Sites {
		s.sites[p.Name] = i
		spans[place{p.Name, kindX, ""}] = spanOf(p.X, p.Shape)
		for i, t := range p.Answer.Trained {
			spans[place{p.Name, kindTrained, t.Name}] = spanOf(p.OfTrained[i], t.Shape)
		}
		for i, t := range p.Answer.State {
			spans[place{p.Name, kindKept, t.Name}] = spanOf(p.Kept[i], t.Shape)
			spans[place{p.Name, kindNext, t.Name}] = spanOf(p.Next[i], t.Shape)
		}
	}
	s.keeper = keeper{origin: c, call: "search", spans: spans, attach: func(ctx context.Context, c *Client) error {
		return c.quantizer.AttachSites(ctx, s.memory.path(), s.layout)
	}}
	if err := s.open(ctx, s.layout.Bytes, SearchTimeoutVariable, DefaultSearchTimeout); err != nil {
		return nil, err
	}
	return s, nil
}

// What the memory of a weight holds besides x.
const (
	kindTrained = "trained parameter"
	kindKept    = "state"
	kindNext    = "next state"
)

// Weight returns where the weight is to be put before a search.
func (s *Searcher) Weight(weight string) []float32 { return s.floats(place{weight, kindX, ""}) }

// Trained returns where a trained parameter of the quantizer is to be put before a search.
func (s *Searcher) Trained(weight, parameter string) []float32 {
	return s.floats(place{weight, kindTrained, parameter})
}

// State returns where a state tensor is to be put before a search. A search leaves it as it is.
func (s *Searcher) State(weight, state string) []float32 {
	return s.floats(place{weight, kindKept, state})
}

// Next returns where a state tensor is after a search.
func (s *Searcher) Next(weight, state string) []float32 {
	return s.floats(place{weight, kindNext, state})
}

// Search finds the states of some weights after a step, from what was put into the memory. After a
// crash, and when there is no answer within the time limit, the plugin is started again, and the
// search begins again, twice at most. Errors are [*Error].
func (s *Searcher) Search(ctx context.Context, step int, weights []string) error {
	var sites []int
	for _, w := range weights {
		sites = append(sites, s.sites[w])
	}
	call := func(ctx context.Context, c *Client) error { return c.quantizer.Search(ctx, step, s.steps, sites) }
	return s.ask(ctx, step, call, func() error { return s.take(weights) })
}

func (s *Searcher) take(weights []string) error {
	x := s.exchange()
	for _, name := range weights {
		for _, st := range s.layout.Sites[s.sites[name]].Answer.State {
			x.take(place{name, kindNext, st.Name}, "the state "+st.Name)
		}
	}
	return x.wait()
}
