package client

import (
	"context"

	"github.com/cage-qat/cage/sdk"
	pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"
	"github.com/cage-qat/cage/sdk/spec"
)

// SearchLayout holds the offsets of the tensors of a Searcher in the memory that it shares with
// its host. Offsets are in bytes, and multiples of 64.
type SearchLayout struct {
	Bytes int64
	Sites []PlacedSite
}

// PlacedSite is a site together with the offsets of its tensors.
type PlacedSite struct {
	sdk.Site
	// Answer is the quantizer's answer for the site.
	Answer spec.Quantizer
	// X, TrainedAt and StateAt are the offsets of the weight, the trained parameters and the state,
	// which the plugin reads; it writes the new state at NextAt. Lists are in the order of Answer.
	X                          int64
	TrainedAt, StateAt, NextAt []int64
}

// ArrangeSites returns the layout with offsets for every site. Offsets in list are ignored.
func ArrangeSites(list []PlacedSite) SearchLayout {
	l := SearchLayout{Sites: make([]PlacedSite, len(list))}
	allocate := allocator(&l.Bytes)
	for i, s := range list {
		s.X = allocate(s.Shape)
		s.TrainedAt, s.StateAt, s.NextAt = nil, nil, nil
		at := map[string]int64{} // by global name: two parameters may be the same shared one
		for _, t := range s.Answer.Trained {
			if _, ok := at[t.At(s.Name)]; !ok {
				at[t.At(s.Name)] = allocate(t.Shape)
			}
			s.TrainedAt = append(s.TrainedAt, at[t.At(s.Name)])
		}
		for _, t := range s.Answer.State {
			s.StateAt, s.NextAt = append(s.StateAt, allocate(t.Shape)), append(s.NextAt, allocate(t.Shape))
		}
		l.Sites[i] = s
	}
	return l
}

// AttachSites makes the plugin map the shared memory: the file at path, of the layout's size.
func (q *Quantizer) AttachSites(ctx context.Context, path string, l SearchLayout) error {
	m := &pb.AttachSitesRequest{Path: path, Bytes: uint64(l.Bytes)}
	for _, s := range l.Sites {
		site, err := toSite(s.Site)
		if err != nil {
			return err
		}
		m.Sites = append(m.Sites, &pb.AttachedSite{Site: site, X: uint64(s.X),
			Trained: offsets(s.TrainedAt), State: offsets(s.StateAt), Next: offsets(s.NextAt)})
	}
	_, err := call(ctx, q.rpc.AttachSites, m)
	return err
}

func offsets(list []int64) (out []uint64) {
	for _, at := range list {
		out = append(out, uint64(at))
	}
	return out
}

// Search requests a search for the sites with the given indices in the layout. step and steps are
// as in [sdk.SearchInput]. When it returns without an error, all next states have been written. An
// error is a [*Mistake], or an error of the call itself, as a gRPC status.
func (q *Quantizer) Search(ctx context.Context, step, steps int, sites []int) error {
	m := &pb.SearchRequest{Step: uint64(step), Steps: uint64(steps)}
	for _, i := range sites {
		m.Sites = append(m.Sites, uint32(i))
	}
	_, err := call(ctx, q.rpc.Search, m)
	return err
}
