package sdktest

import (
	"errors"
	"fmt"

	"github.com/cage-qat/cage/sdk"
)

// QuantizerSubject is a quantizer under test, in this process or in another.
type QuantizerSubject struct {
	// Describe returns the description.
	Describe func() (sdk.Description, error)
	// Programs returns the checked programs of a site. An error that wraps
	// [*sdk.Refusal] says that the plugin does not support the settings or the
	// shape; every other one is a failure of the plugin.
	Programs func(sdk.Site) (sdk.QuantizerProgram, error)
}

// OptimizerSubject is an optimizer under test, in this process or in another.
type OptimizerSubject struct {
	// Describe returns the description.
	Describe func() (sdk.Description, error)
	// Programs returns the checked programs of a tensor, as for a quantizer.
	Programs func(sdk.Tensor) (sdk.OptimizerProgram, error)
}

// NewQuantizer is the subject for a quantizer in this process.
func NewQuantizer(q sdk.Quantizer) QuantizerSubject {
	return QuantizerSubject{
		Describe: func() (sdk.Description, error) { return describe(q.Describe) },
		Programs: func(site sdk.Site) (sdk.QuantizerProgram, error) {
			return sdk.BuildQuantizer(q, site)
		},
	}
}

// NewOptimizer is the subject for an optimizer in this process.
func NewOptimizer(o sdk.Optimizer) OptimizerSubject {
	return OptimizerSubject{
		Describe: func() (sdk.Description, error) { return describe(o.Describe) },
		Programs: func(tensor sdk.Tensor) (sdk.OptimizerProgram, error) {
			return sdk.BuildOptimizer(o, tensor)
		},
	}
}

func describe(f func() sdk.Description) (d sdk.Description, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic in Describe: %v", r)
		}
	}()
	return f(), nil
}

// isRefusal reports whether an error is a refusal.
func isRefusal(err error) bool {
	_, ok := errors.AsType[*sdk.Refusal](err)
	return ok
}

// refusals counts what a plugin refused, and keeps the first for a person to see
// whether it says what to do.
type refusals struct {
	count int
	first error
}

func (r *refusals) add(err error) {
	if r.count++; r.first == nil {
		r.first = err
	}
}

// note tells how many of n were refused.
func (r *refusals) note(t *trial, n int, what string) {
	if r.count == 0 {
		return
	}
	t.notef("%d of %d %s refused, the first with: %v", r.count, n, what, r.first)
}
