package sdk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/cage-qat/cage/sdk/internal/wire"
	pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"
	"github.com/cage-qat/cage/sdk/program"
)

// opaqueServer is the service of an opaque optimizer.
type opaqueServer struct {
	optimizerServer
	author OpaqueOptimizer

	mu       sync.Mutex // held by a step, which comes alone
	memory   *sharedMemory
	attached []*attached // the largest first
}

func (s *opaqueServer) Describe(context.Context, *pb.DescribeRequest) (*pb.DescribeResponse, error) {
	r, err := describeResponse(s.author.Describe())
	if err == nil {
		r.Description.Capabilities = []string{wire.OpaqueCapability}
	}
	return r, err
}

// attached is a tensor in shared memory.
type attached struct {
	tensor                 Tensor
	rateFactor             float64
	x, gradient, direction []float32
	states                 []attachedState
}

// attachedState has both places of a state tensor, the even one first.
type attachedState struct {
	name        string
	read, write [2][]float32
}

// Attach maps the memory.
func (s *opaqueServer) Attach(_ context.Context, r *pb.AttachRequest) (*pb.AttachResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	memory, err := openShared(r.GetPath(), r.GetBytes())
	if err != nil {
		return nil, failure(fmt.Errorf("the memory that the host shares: %w", err))
	}
	list := make([]*attached, 0, len(r.GetTensors()))
	for _, m := range r.GetTensors() {
		a, err := s.attach(memory, m)
		if err != nil {
			_ = memory.close()
			return nil, notAttached(m.GetTensor().GetName(), err)
		}
		list = append(list, a)
	}
	slices.SortStableFunc(list, func(a, b *attached) int { return cmp.Compare(len(b.x), len(a.x)) })
	if s.memory != nil {
		_ = s.memory.close()
	}
	s.memory, s.attached = memory, list
	return &pb.AttachResponse{}, nil
}

func notAttached(tensor string, err error) error {
	if m, ok := errors.AsType[*SiteError](err); ok {
		return failure(fmt.Errorf("%s: %w", m.Site, m.Err))
	}
	return wire.ToStatus(wire.Unreadable, fmt.Sprintf("%s: %v", tensor, err))
}

func (s *opaqueServer) attach(memory *sharedMemory, m *pb.AttachedTensor) (*attached, error) {
	t, err := fromTensor(m.GetTensor())
	if err != nil {
		return nil, err
	}
	built, err := BuildOptimizer(opaque{s.author}, t)
	if err != nil {
		return nil, err
	}
	if len(built.State) != len(m.GetState()) {
		return nil, fmt.Errorf("%d state tensors are attached, and the plugin has %d", len(m.GetState()), len(built.State))
	}
	a := &attached{tensor: t, rateFactor: m.GetRateFactor()}
	var errs []error
	find := finding(&errs)
	a.x, a.gradient = find(memory.reads, m.GetX(), t.Shape), find(memory.reads, m.GetGradient(), t.Shape)
	a.direction = find(memory.writes, m.GetDirection(), t.Shape)
	for i, st := range built.State {
		state := attachedState{name: st.Name}
		for odd, at := range []uint64{m.GetState()[i].GetEven(), m.GetState()[i].GetOdd()} {
			state.read[odd], state.write[odd] = find(memory.reads, at, st.Shape), find(memory.writes, at, st.Shape)
		}
		a.states = append(a.states, state)
	}
	return a, errors.Join(errs...)
}

// finding returns a function that finds a tensor in shared memory, by a view of it, and adds its
// errors to a list.
func finding(errs *[]error) func(view func(uint64, int) ([]float32, error), at uint64, shape []int) []float32 {
	return func(view func(uint64, int) ([]float32, error), at uint64, shape []int) []float32 {
		list, err := view(at, int(program.FloatType(shape...).Size()))
		*errs = append(*errs, err)
		return list
	}
}

// Step computes an update of all tensors, side by side.
func (s *opaqueServer) Step(_ context.Context, r *pb.StepRequest) (*pb.StepResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.memory == nil {
		return nil, wire.ToStatus(wire.Unreadable, "a step before Attach")
	}
	if err := sideBySide(s.attached, func(a *attached) error { return s.step(r, a) }); err != nil {
		return nil, failure(err)
	}
	return &pb.StepResponse{}, nil
}

// sideBySide calls f for all of a list, in this order, as many at a time as there are processors.
// After an error it begins no more.
func sideBySide[T any](list []T, f func(T) error) error {
	next := make(chan T, len(list))
	for _, a := range list {
		next <- a
	}
	close(next)
	errs := make([]error, len(list))
	var workers sync.WaitGroup
	for i := range min(runtime.GOMAXPROCS(0), len(list)) {
		workers.Go(func() {
			for a := range next {
				if errs[i] = f(a); errs[i] != nil {
					return
				}
			}
		})
	}
	workers.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// guarded calls the author's code for one tensor and names the tensor in its errors. A panic
// becomes an error, also that of writing to the memory that can only be read, which are the fields
// in readOnly.
func guarded(tensor string, memory *sharedMemory, readOnly string, f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if fault, ok := p.(interface{ Addr() uintptr }); ok && memory.protects(fault.Addr()) {
			p = "it writes to " + readOnly + ", which can only be read"
		}
		err = fmt.Errorf("%s: panic: %v%s", tensor, p, panicSite())
	}()
	if err := f(); err != nil {
		return fmt.Errorf("%s: %w", tensor, err)
	}
	return nil
}

func (s *opaqueServer) step(r *pb.StepRequest, a *attached) error {
	from, to := 0, 1
	if r.GetOdd() {
		from, to = to, from
	}
	in := OpaqueStep{
		X: a.x, Gradient: a.gradient, Direction: a.direction,
		Step: int(r.GetStep()), Steps: int(r.GetSteps()), Rate: r.GetRate() * a.rateFactor, Loss: r.GetLoss(),
		State: map[string][]float32{}, Next: map[string][]float32{},
	}
	for _, st := range a.states {
		in.State[st.name], in.Next[st.name] = st.read[from], st.write[to]
	}
	return guarded(a.tensor.Name, s.memory, "X, Gradient or State", func() error { return s.author.Step(in, a.tensor) })
}
