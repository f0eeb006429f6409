package conformance

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/spec"
)

// search runs the searches of a quantizer in a process that has the memory of one weight; for
// another weight it starts another process.
type search struct {
	client   *plugin.Client
	mu       sync.Mutex
	key      string // of the weight
	searcher *plugin.Searcher
}

func (s *search) run(ctx context.Context, site sdk.Site, in sdk.SearchInput) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	key := fmt.Sprintf("%q %v %v %v %d", site.Name, site.Shape, site.Layer, site.Map(), in.Steps)
	if key != s.key {
		s.end()
		answer := spec.Quantizer{Trained: sizesOf(in.Trained), State: sizesOf(in.State)}
		searcher, err := plugin.NewSearcher(ctx, s.client, []plugin.SearchedSite{{Site: site, Answer: answer}}, in.Steps)
		if err != nil {
			return err
		}
		s.key, s.searcher = key, searcher
	}
	copy(s.searcher.Weight(site.Name), in.X)
	for name, v := range in.Trained {
		copy(s.searcher.Trained(site.Name, name), v)
	}
	for name, v := range in.State {
		copy(s.searcher.State(site.Name, name), v)
		copy(s.searcher.Next(site.Name, name), in.Next[name])
	}
	if err := s.searcher.Search(ctx, in.Step, []string{site.Name}); err != nil {
		return err
	}
	for name, v := range in.Next {
		copy(v, s.searcher.Next(site.Name, name))
	}
	return nil
}

// sizesOf lists tensors in the order of their names, with their sizes as their shapes, which are
// the plugin's affair.
func sizesOf(tensors map[string][]float32) (list []spec.Tensor) {
	for name, v := range tensors {
		list = append(list, spec.Tensor{Name: name, Shape: []int{len(v)}})
	}
	slices.SortFunc(list, func(a, b spec.Tensor) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

func (s *search) end() {
	if s.searcher != nil {
		s.searcher.Close()
		s.searcher, s.key = nil, ""
	}
}

func (s *search) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
}
