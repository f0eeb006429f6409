package sdk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/cage-qat/cage/sdk/internal/wire"
	pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"
)

// searchServer is the service of a quantizer that searches.
type searchServer struct {
	quantizerServer
	author Searcher

	mu       sync.Mutex // held by a search, which comes alone
	memory   *sharedMemory
	attached []*searched // as the host numbers them
}

func (s *searchServer) Describe(context.Context, *pb.DescribeRequest) (*pb.DescribeResponse, error) {
	r, err := describeResponse(s.q.Describe())
	if err == nil {
		r.Description.Capabilities = []string{wire.SearchCapability}
	}
	return r, err
}

// searched is a weight in shared memory.
type searched struct {
	site                 Site
	x                    []float32
	trained, state, next map[string][]float32
}

// AttachSites maps the memory.
func (s *searchServer) AttachSites(_ context.Context, r *pb.AttachSitesRequest) (*pb.AttachResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	memory, err := openShared(r.GetPath(), r.GetBytes())
	if err != nil {
		return nil, failure(fmt.Errorf("the memory that the host shares: %w", err))
	}
	list := make([]*searched, 0, len(r.GetSites()))
	for _, m := range r.GetSites() {
		a, err := s.attach(memory, m)
		if err != nil {
			_ = memory.close()
			return nil, notAttached(m.GetSite().GetName(), err)
		}
		list = append(list, a)
	}
	if s.memory != nil {
		_ = s.memory.close()
	}
	s.memory, s.attached = memory, list
	return &pb.AttachResponse{}, nil
}

func (s *searchServer) attach(memory *sharedMemory, m *pb.AttachedSite) (*searched, error) {
	site, err := fromSite(m.GetSite())
	if err != nil {
		return nil, err
	}
	built, err := BuildQuantizer(s.q, site)
	if err != nil {
		return nil, err
	}
	for _, of := range []struct {
		what      string
		have, are int
	}{{"trained parameters", len(built.Trained), len(m.GetTrained())}, {"state tensors", len(built.State), len(m.GetState())}, {"next state tensors", len(built.State), len(m.GetNext())}} {
		if of.have != of.are {
			return nil, fmt.Errorf("%d %s are attached, and the plugin has %d", of.are, of.what, of.have)
		}
	}
	var errs []error
	find := finding(&errs)
	a := &searched{site: site, x: find(memory.reads, m.GetX(), site.Shape), trained: map[string][]float32{}, state: map[string][]float32{}, next: map[string][]float32{}}
	for i, t := range built.Trained {
		a.trained[t.Name] = find(memory.reads, m.GetTrained()[i], t.Shape)
	}
	for i, t := range built.State {
		a.state[t.Name], a.next[t.Name] = find(memory.reads, m.GetState()[i], t.Shape), find(memory.writes, m.GetNext()[i], t.Shape)
	}
	return a, errors.Join(errs...)
}

// Search finds the state of some sites, side by side.
func (s *searchServer) Search(_ context.Context, r *pb.SearchRequest) (*pb.SearchResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*searched
	for _, i := range r.GetSites() {
		if int64(i) >= int64(len(s.attached)) {
			return nil, wire.ToStatus(wire.Unreadable, fmt.Sprintf("a search of site %d, where %d are attached", i, len(s.attached)))
		}
		list = append(list, s.attached[i])
	}
	slices.SortStableFunc(list, func(a, b *searched) int { return cmp.Compare(len(b.x), len(a.x)) }) // the largest first
	err := sideBySide(list, func(a *searched) error {
		// Maps of its own: the author may change them.
		in := SearchInput{X: a.x, Trained: maps.Clone(a.trained), State: maps.Clone(a.state), Next: maps.Clone(a.next), Step: int(r.GetStep()), Steps: int(r.GetSteps())}
		return guarded(a.site.Name, s.memory, "X, Trained or State", func() error { return s.author.Search(in, a.site) })
	})
	if err != nil {
		return nil, failure(err)
	}
	return &pb.SearchResponse{}, nil
}
