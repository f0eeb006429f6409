package sdktest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cage-qat/cage/sdk"
)

// ErrRefused marks an error by which the plugin itself, in words of its own, refused
// settings or a shape that it does not support. Every other error of a subject is a
// failure of the plugin: a panic, a crash, an invalid program.
var ErrRefused = errors.New("the plugin refused")

// QuantizerSubject is a quantizer under test, in this process or in another.
type QuantizerSubject struct {
	// Describe returns the description.
	Describe func() (sdk.Description, error)
	// Programs returns the checked programs of a site. An error that wraps
	// [ErrRefused] is a refusal.
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
			out, err := sdk.BuildQuantizer(q, site)
			return out, classify(err)
		},
	}
}

// NewOptimizer is the subject for an optimizer in this process.
func NewOptimizer(o sdk.Optimizer) OptimizerSubject {
	return OptimizerSubject{
		Describe: func() (sdk.Description, error) { return describe(o.Describe) },
		Programs: func(tensor sdk.Tensor) (sdk.OptimizerProgram, error) {
			out, err := sdk.BuildOptimizer(o, tensor)
			return out, classify(err)
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

// classify marks the errors that an author returned.
func classify(err error) error {
	if site, ok := errors.AsType[*sdk.SiteError](err); ok && Refusal(site.Err.Error()) {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return err
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
	text := strings.TrimPrefix(r.first.Error(), ErrRefused.Error()+": ")
	t.notef("%d of %d %s refused, the first with: %s", r.count, n, what, text)
}

// Refusal tells from its text an author's own error from one that package sdk made
// of a panic or of a program that could not be built. Text is all that crosses the
// boundary of a process.
func Refusal(text string) bool {
	return text != "" && !strings.Contains(text, "panic: ") && !strings.Contains(text, `program "`)
}
