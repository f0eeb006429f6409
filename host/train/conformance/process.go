package conformance

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// process is a process of a plugin. It shares memory with the host for one tensor, and is replaced
// by a new process when another tensor is needed.
type process[T interface{ Close() }] struct {
	client  *plugin.Client
	mu      sync.Mutex
	key     string // identifies the tensor; empty: no process is running
	running T
}

func (p *process[T]) get(ctx context.Context, key string, start func() (T, error)) (T, error) {
	if err := ctx.Err(); err != nil || key == p.key {
		return p.running, err
	}
	p.end()
	s, err := start()
	if err == nil {
		p.key, p.running = key, s
	}
	return s, err
}

func (p *process[T]) end() {
	if p.key != "" {
		p.running.Close()
		p.key = ""
	}
}

func (p *process[T]) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end()
}

// step computes one update of an opaque optimizer, on copies of the tensors.
func step(ctx context.Context, p *process[*plugin.Stepper], tensor sdk.Tensor,
	in sdk.OpaqueStep) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := tensor.Name
	key := fmt.Sprintf("%q %q %v %v %v", name, tensor.Role, tensor.Shape, tensor.Parts, tensor.Map())
	s, err := p.get(ctx, key, func() (*plugin.Stepper, error) {
		list := []plugin.OpaqueTensor{{Tensor: tensor, State: sizesOf(in.State), RateFactor: 1}}
		return plugin.NewStepper(ctx, p.client, list)
	})
	if err != nil {
		return err
	}
	given, found := s.Buffers(name)
	copy(given[program.KindOpaqueX.Of(name)], in.X)
	copy(given[program.KindGivenGradient.Of(name)], in.Gradient)
	copy(found[program.KindDirection.Of(name)], in.Direction)
	for st := range in.State {
		copy(given[program.KindState.PartOf(name, st)], in.State[st])
		copy(found[program.KindState.PartOf(name, st)], in.Next[st])
	}
	if err := s.Step(in.Step, in.Steps, in.Rate, in.Loss); err != nil {
		return err
	}
	copy(in.Direction, found[program.KindDirection.Of(name)])
	for st, next := range in.Next {
		copy(next, found[program.KindState.PartOf(name, st)])
	}
	return nil
}

// search runs one search of a quantizer, on copies of the tensors.
func search(ctx context.Context, p *process[*plugin.Searcher], site sdk.Site,
	in sdk.SearchInput) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := fmt.Sprintf("%q %v %v %v %d", site.Name, site.Shape, site.Layer, site.Map(), in.Steps)
	s, err := p.get(ctx, key, func() (*plugin.Searcher, error) {
		answer := spec.Quantizer{Trained: sizesOf(in.Trained), State: sizesOf(in.State)}
		list := []plugin.SearchedSite{{Site: site, Answer: answer}}
		return plugin.NewSearcher(ctx, p.client, list, in.Steps)
	})
	if err != nil {
		return err
	}
	given, found := s.Buffers(site.Name)
	copy(given[program.KindParam.Of(site.Name)], in.X)
	for name, v := range in.Trained {
		copy(given[program.KindParam.Of(spec.Tensor{Name: name}.At(site.Name))], v)
	}
	for name, v := range in.State {
		copy(given[program.KindQuantizerState.PartOf(site.Name, name)], v)
		copy(found[program.KindQuantizerState.PartOf(site.Name, name)], in.Next[name])
	}
	if err := s.Search(ctx, in.Step, []string{site.Name}); err != nil {
		return err
	}
	for name, v := range in.Next {
		copy(v, found[program.KindQuantizerState.PartOf(site.Name, name)])
	}
	return nil
}

// sizesOf describes each tensor as a vector of its length, sorted by name.
func sizesOf(tensors map[string][]float32) (list []spec.Tensor) {
	for name, v := range tensors {
		list = append(list, spec.Tensor{Name: name, Shape: []int{len(v)}})
	}
	slices.SortFunc(list, func(a, b spec.Tensor) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
