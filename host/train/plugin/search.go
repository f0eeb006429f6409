package plugin

import (
	"context"
	"time"

	"github.com/cage-qat/cage/sdk/client"
	"github.com/cage-qat/cage/sdk/program"
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

// Buffers returns the buffers of a weight by the names that [program.Kind.Of] makes: those of the
// weight, and of the trained parameters and the states of its quantizer, to be filled before a
// search, which does not change them, and those that hold the new states after it.
func (s *Searcher) Buffers(weight string) (in, out map[string][]float32) {
	p := s.site(weight)
	in = map[string][]float32{program.KindParam.Of(weight): s.view(p.X, p.Shape)}
	for i, t := range p.Answer.Trained {
		in[program.KindParam.Of(t.At(weight))] = s.view(p.TrainedAt[i], t.Shape)
	}
	out = map[string][]float32{}
	for i, st := range p.Answer.State {
		name := program.KindQuantizerState.PartOf(weight, st.Name)
		in[name], out[name] = s.view(p.StateAt[i], st.Shape), s.view(p.NextAt[i], st.Shape)
	}
	return in, out
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
