package sdk

import (
	"errors"
	"slices"
	"strings"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// Optional interfaces that few algorithms need. Package ext documents them; they are declared here
// because this package, which package ext imports, calls their methods.
type (
	Sharer interface {
		Shared(p string, site Site) string
	}
	Constrained interface {
		Constrain(b *program.Builder, p string, v program.Value, site Site) (program.Value, error)
	}
	Maximal interface {
		Maximum(s string, site Site) bool
	}
	Searcher interface {
		SearchState(site Site) (state []StateTensor, every int, err error)
		Search(in SearchInput, site Site) error
	}

	Pacer interface {
		Rate(b *program.Builder, in UpdateInput, t Tensor) (program.Value, error)
	}
	Collector interface {
		Collect(b *program.Builder, in UpdateInput, t Tensor) (State, error)
	}
	Prober interface {
		Probe(b *program.Builder, in UpdateInput, t Tensor) (program.Value, error)
		ProbeAt(t Tensor) Due
	}
	Sampler interface {
		SampleAt(t Tensor) Due
	}
	Averaged interface {
		Evaluate(b *program.Builder, x program.Value, state State, t Tensor) (program.Value, error)
	}
	Rounded interface {
		RoundTo(t Tensor) Storage
	}
	OpaqueOptimizer interface {
		Describe() Description
		State(t Tensor) ([]StateTensor, error)
		Step(in OpaqueStep, t Tensor) error
	}
)

// SearchInput is the input of a search for one weight. Tensors are in row-major order. X, Trained
// and State are read-only memory: writing to them faults.
type SearchInput struct {
	// X is the weight.
	X []float32
	// Trained holds the trained parameters, if the quantizer is [Trainable].
	Trained map[string][]float32
	// State is the state that the previous search wrote to Next; it is zero in the first search.
	State map[string][]float32
	// Step is the number of completed steps: 0 in the first search. Steps is the total number of
	// steps of the run.
	Step, Steps int
	// Next is the buffer for the new state. Its initial content is unspecified.
	Next map[string][]float32
}

// StateTensor is the name and shape of a state tensor; its other fields are empty.
type StateTensor = spec.Tensor

// OpaqueStep is one update of one tensor. Tensors are in row-major order. X, Gradient, Step, Steps,
// Rate and Loss are as in [UpdateInput]. X, Gradient and State are read-only memory: writing to
// them faults.
type OpaqueStep struct {
	X, Gradient []float32
	Step, Steps int
	Rate, Loss  float64
	// State is the state that the previous update wrote to Next; it is zero in the first update.
	State map[string][]float32

	// Direction is the buffer for u. The host applies x ← x − α·u.
	Direction []float32
	// Next is the buffer for the new state. Its initial content is unspecified.
	Next map[string][]float32
}

// ServeOpaqueOptimizer is the main function of an opaque optimizer plugin; see [ServeQuantizer].
func ServeOpaqueOptimizer(o OpaqueOptimizer) { serve(nil, opaque{o}) }

// Opaque wraps an opaque optimizer as an [Optimizer], for hosts: [BuildOptimizer] then returns an
// answer with Opaque set that lists state tensors but has no programs.
func Opaque(o OpaqueOptimizer) Optimizer { return opaque{o} }

// opaque adapts an OpaqueOptimizer to the interface Optimizer. It writes no programs.
type opaque struct{ OpaqueOptimizer }

var errOpaque = errors.New("an opaque optimizer has no programs")

func (opaque) Init(*program.Builder, program.Value, Tensor) (State, error) { return nil, errOpaque }

func (opaque) Update(*program.Builder, UpdateInput, Tensor) (program.Value, State, error) {
	return program.Value{}, nil, errOpaque
}

func (o opaque) build(t Tensor) (out spec.Optimizer) {
	if s, ok := o.OpaqueOptimizer.(Selective); ok && !s.Accepts(t) {
		return out
	}
	state, err := o.State(t)
	must(err)
	out = spec.Optimizer{Accepts: true, Opaque: true, State: slices.Clone(state)}
	slices.SortFunc(out.State, func(x, y StateTensor) int { return strings.Compare(x.Name, y.Name) })
	must(out.Check(t.Shape))
	return out
}
