package engine

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/shapes"
)

// A Trial checks whether a device computes a fused operation correctly. Fused builds that
// operation, and Plain the operations that it replaces. Their outputs agree in number and sizes and
// are float32 or bfloat16.
type Trial struct {
	Inputs       []Input
	Fused, Plain BuildFunc
	// Compare returns an error if fused and plain outputs differ by more than rounding error.
	Compare func(fused, plain [][]float32) error
}

// ErrRefused is wrapped by the error of a trial whose fused operation the device cannot compile or
// run.
var ErrRefused = errors.New("the device does not support the operation")

// Try runs a trial and returns its error.
func (d *Device) Try(t Trial) error {
	evaluate := func(name string, build BuildFunc) ([][]float32, error) {
		return d.Evaluate("trial, "+name, t.Inputs, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			out := slices.Clone(build(g, in))
			for i, x := range out {
				out[i] = graph.ConvertDType(x, shapes.Float32)
			}
			return out
		})
	}
	fused, err := evaluate("fused", t.Fused)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	plain, err := evaluate("as operations", t.Plain)
	if err != nil {
		return err
	}
	return t.Compare(fused, plain)
}

// trialKey is the [Device.Once] key for the outcome of the trial of a kind.
type trialKey string

// Passes reports whether the device computes a kind of fused operation correctly. It runs the trial
// once. If the trial fails, Passes logs the warning, which names the alternative. The trial must
// pass on all processes, because they run the same program.
func (d *Device) Passes(kind, warning string, trial func() (Trial, error)) bool {
	return d.Once(trialKey(kind), func() any {
		t, err := trial()
		if err == nil {
			err = d.Try(t)
		}
		if p := d.options.Processes; p != nil {
			votes, failed := p.Agree("trial of "+kind, Vote(err == nil))
			if failed == nil && slices.Contains(votes, 0) {
				failed = fmt.Errorf("process %d failed the trial", slices.Index(votes, 0))
			}
			err = cmp.Or(err, failed)
		}
		if err != nil {
			d.Warn(warning, "kind", kind, "reason", err)
		}
		return err == nil
	}).(bool)
}

// Distance returns ‖a − b‖/‖b‖, for [Trial.Compare].
func Distance(a, b []float32) float64 {
	difference, norm := 0.0, 0.0
	for i := range b {
		d := float64(a[i]) - float64(b[i])
		difference, norm = difference+d*d, norm+float64(b[i])*float64(b[i])
	}
	return math.Sqrt(difference / norm)
}
