package sdk

import (
	"errors"
	"slices"
	"strings"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

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
