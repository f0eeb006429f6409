package sdk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cage-qat/cage/sdk/internal/wire"
	pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"
	"github.com/cage-qat/cage/sdk/program"
)

type attachments[T any] struct {
	mu     sync.Mutex // held during a call: calls are serialized
	memory *sharedMemory
	list   []T
}

// attach maps the memory and locates in it the tensors or sites that the messages describe.
func attach[M, T any](
	a *attachments[T], path string, bytes uint64, messages []M, name func(M) string,
	find func(*finder, M) (T, error),
) (*pb.AttachResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	memory, err := openShared(path, bytes)
	if err != nil {
		return nil, failure(fmt.Errorf("shared memory: %w", err))
	}
	list := make([]T, len(messages))
	for i, m := range messages {
		f := &finder{memory: memory}
		list[i], err = find(f, m)
		if err = cmp.Or(err, f.err); err == nil {
			continue
		}
		_ = memory.close()
		if of, ok := errors.AsType[*SiteError](err); ok {
			return nil, failure(fmt.Errorf("%s: %w", of.Site, of.Err))
		}
		return nil, wire.ToStatus(wire.Unreadable, fmt.Sprintf("%s: %v", name(m), err))
	}
	if a.memory != nil {
		_ = a.memory.close()
	}
	a.memory, a.list = memory, list
	return &pb.AttachResponse{}, nil
}

// finder locates tensors in shared memory and keeps the first error.
type finder struct {
	memory *sharedMemory
	err    error
}

func (f *finder) input(at uint64, shape []int) []float32 {
	return f.find(f.memory.read, at, shape)
}

func (f *finder) output(at uint64, shape []int) []float32 {
	return f.find(f.memory.write, at, shape)
}

// named returns the tensors of a list, which are at the given offsets of the memory, by name.
func (f *finder) named(memory []byte, at []uint64, list []StateTensor) map[string][]float32 {
	found := make(map[string][]float32, len(list))
	for i, t := range list {
		found[t.Name] = f.find(memory, at[i], t.Shape)
	}
	return found
}

func (f *finder) find(memory []byte, at uint64, shape []int) []float32 {
	list, err := floats(memory, at, int(program.FloatType(shape...).Size()))
	f.err = cmp.Or(f.err, err)
	return list
}

// inParallel calls f for the elements of a list, the largest first, at most GOMAXPROCS at a time.
// After an error it starts no further calls.
func inParallel[T any](list []T, size func(T) int, f func(T) error) error {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b T) int { return cmp.Compare(size(b), size(a)) })
	errs := make([]error, len(list))
	var failed atomic.Bool
	var group sync.WaitGroup
	running := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, a := range list {
		running <- struct{}{}
		group.Go(func() {
			defer func() { <-running }()
			if failed.Load() {
				return
			}
			if errs[i] = f(a); errs[i] != nil {
				failed.Store(true)
			}
		})
	}
	group.Wait()
	return cmp.Or(errs...)
}

// guarded calls the author's code f for one tensor and names the tensor in its errors. A panic
// becomes an error, and so does a write to read-only memory, that is, to the fields in readOnly.
func guarded(tensor string, memory *sharedMemory, readOnly string, f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if fault, ok := p.(interface{ Addr() uintptr }); ok && memory.protects(fault.Addr()) {
			p = "it writes to " + readOnly + ", which are read-only"
		}
		err = fmt.Errorf("%s: panic: %v%s", tensor, p, panicSite())
	}()
	if err := f(); err != nil {
		return fmt.Errorf("%s: %w", tensor, err)
	}
	return nil
}

// attachedTensor is a tensor in shared memory.
type attachedTensor struct {
	tensor                 Tensor
	rateFactor             float64
	x, gradient, direction []float32
	state, next            map[string][]float32
}

// Attach maps the shared memory that holds the tensors.
func (s *optimizerServer) Attach(
	_ context.Context, r *pb.AttachRequest,
) (*pb.AttachResponse, error) {
	name := func(m *pb.AttachedTensor) string { return m.GetTensor().GetName() }
	return attach(&s.attachments, r.GetPath(), r.GetBytes(), r.GetTensors(), name, s.find)
}

func (s *optimizerServer) find(f *finder, m *pb.AttachedTensor) (*attachedTensor, error) {
	t, err := fromTensor(m.GetTensor())
	if err != nil {
		return nil, err
	}
	built, err := BuildOptimizer(s.o, t)
	if err != nil {
		return nil, err
	}
	states, next, want := len(m.GetState()), len(m.GetNext()), len(built.State)
	if states != want || next != want {
		return nil, fmt.Errorf("the host attached %d state tensors and %d for their next values, but "+
			"the plugin has %d", states, next, want)
	}
	return &attachedTensor{tensor: t, rateFactor: m.GetRateFactor(),
		x: f.input(m.GetX(), t.Shape), gradient: f.input(m.GetGradient(), t.Shape),
		direction: f.output(m.GetDirection(), t.Shape),
		state:     f.named(f.memory.read, m.GetState(), built.State),
		next:      f.named(f.memory.write, m.GetNext(), built.State)}, nil
}

// Step computes an update of all tensors, concurrently.
func (s *optimizerServer) Step(_ context.Context, r *pb.StepRequest) (*pb.StepResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.memory == nil {
		return nil, wire.ToStatus(wire.Unreadable, "Step was called before Attach")
	}
	size := func(a *attachedTensor) int { return len(a.x) }
	err := inParallel(s.list, size, func(a *attachedTensor) error {
		in := OpaqueStep{
			X: a.x, Gradient: a.gradient, Direction: a.direction,
			Step: int(r.GetStep()), Steps: int(r.GetSteps()),
			Rate: r.GetRate() * a.rateFactor, Loss: r.GetLoss(),
			State: maps.Clone(a.state), Next: maps.Clone(a.next), // the author may change the maps
		}
		step := func() error { return s.o.(OpaqueOptimizer).Step(in, a.tensor) }
		return guarded(a.tensor.Name, s.memory, "X, Gradient or State", step)
	})
	if err != nil {
		return nil, failure(err)
	}
	return &pb.StepResponse{}, nil
}

type attachedSite struct {
	site                 Site
	x                    []float32
	trained, state, next map[string][]float32
}

// AttachSites maps the shared memory that holds the sites' data.
func (s *quantizerServer) AttachSites(
	_ context.Context, r *pb.AttachSitesRequest,
) (*pb.AttachResponse, error) {
	name := func(m *pb.AttachedSite) string { return m.GetSite().GetName() }
	return attach(&s.attachments, r.GetPath(), r.GetBytes(), r.GetSites(), name, s.find)
}

func (s *quantizerServer) find(f *finder, m *pb.AttachedSite) (*attachedSite, error) {
	site, err := fromSite(m.GetSite())
	if err != nil {
		return nil, err
	}
	built, err := BuildQuantizer(s.q, site)
	if err != nil {
		return nil, err
	}
	trained, states, next := len(m.GetTrained()), len(m.GetState()), len(m.GetNext())
	if want := len(built.State); trained != len(built.Trained) || states != want || next != want {
		return nil, fmt.Errorf("the host attached %d trained parameters, %d state tensors and %d for "+
			"their next values, but the plugin has %d and %d", trained, states, next, len(built.Trained),
			want)
	}
	return &attachedSite{site: site, x: f.input(m.GetX(), site.Shape),
		trained: f.named(f.memory.read, m.GetTrained(), built.Trained),
		state:   f.named(f.memory.read, m.GetState(), built.State),
		next:    f.named(f.memory.write, m.GetNext(), built.State)}, nil
}

// Search computes the state of the requested sites, concurrently.
func (s *quantizerServer) Search(
	_ context.Context, r *pb.SearchRequest,
) (*pb.SearchResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*attachedSite
	for _, i := range r.GetSites() {
		if int64(i) >= int64(len(s.list)) {
			return nil, wire.ToStatus(wire.Unreadable,
				fmt.Sprintf("Search names site %d, but only %d sites are attached", i, len(s.list)))
		}
		list = append(list, s.list[i])
	}
	size := func(a *attachedSite) int { return len(a.x) }
	err := inParallel(list, size, func(a *attachedSite) error {
		// Cloned, because the author may change the maps.
		in := SearchInput{X: a.x, Trained: maps.Clone(a.trained), State: maps.Clone(a.state),
			Next: maps.Clone(a.next), Step: int(r.GetStep()), Steps: int(r.GetSteps())}
		search := func() error { return s.q.(Searcher).Search(in, a.site) }
		return guarded(a.site.Name, s.memory, "X, Trained or State", search)
	})
	if err != nil {
		return nil, failure(err)
	}
	return &pb.SearchResponse{}, nil
}
