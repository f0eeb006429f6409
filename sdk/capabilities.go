package sdk

import "github.com/cage-qat/cage/sdk/program"

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
