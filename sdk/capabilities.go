package sdk

import "github.com/cage-qat/cage/sdk/program"

// The capabilities that few algorithms need. Package ext documents them; they are declared here,
// because this package calls their methods and package ext imports it.
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
