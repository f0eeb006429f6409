package step

import (
	"fmt"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/engine/autodiff"
	"github.com/cage-qat/cage/host/lower"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/sdk"
	progdiff "github.com/cage-qat/cage/sdk/program/autodiff"
)

// Quantizer is the fake quantization of one tensor inside a graph. Its methods
// build graphs and panic as such functions do.
type Quantizer interface {
	// Forward returns Q(x) and the residuals that Backward needs beside x and
	// Q(x).
	Forward(x *graph.Node) (value *graph.Node, residuals []*graph.Node)
	// Backward returns the gradient on x from dy, that on Q(x).
	Backward(x, value *graph.Node, residuals []*graph.Node, dy *graph.Node) *graph.Node
}

// programQuantizer inlines a plugin's program, split in its forward and backward
// parts.
type programQuantizer struct{ parts *progdiff.Partition }

// FromProgram prepares a plugin's program for graphs.
func FromProgram(q sdk.QuantizerProgram) (Quantizer, error) {
	parts, err := progdiff.Split(q.Program, []string{sdk.OutputValue}, sdk.OutputSurrogate, sdk.InputX)
	if err != nil {
		return nil, fmt.Errorf("gradient of the surrogate: %w", err)
	}
	return programQuantizer{parts}, nil
}

func (q programQuantizer) Forward(x *graph.Node) (*graph.Node, []*graph.Node) {
	out := lower.Lower(x.Graph(), q.parts.Forward, []*graph.Node{x})
	var residuals []*graph.Node
	for _, r := range q.parts.Residuals {
		if !r.Input && r.Name != sdk.OutputValue {
			residuals = append(residuals, out[r.Name])
		}
	}
	return out[sdk.OutputValue], residuals
}

func (q programQuantizer) Backward(x, value *graph.Node, residuals []*graph.Node, dy *graph.Node) *graph.Node {
	var in []*graph.Node
	next := 0
	for _, r := range q.parts.Residuals {
		switch {
		case r.Input:
			in = append(in, x)
		case r.Name == sdk.OutputValue:
			in = append(in, value)
		default:
			in = append(in, residuals[next])
			next++
		}
	}
	out := lower.Lower(dy.Graph(), q.parts.Backward, append(in, dy))
	return out[progdiff.Prefix+sdk.InputX]
}

// activations makes the model's hook from the quantizers by site. The forward
// value is Q(x) bit for bit; the gradient is the surrogate's.
func activations(bySite map[string]Quantizer) model.ActivationQuantizer {
	if len(bySite) == 0 {
		return nil
	}
	return func(site model.ActivationSite, x *graph.Node) *graph.Node {
		q, ok := bySite[site.Name]
		if !ok {
			return x
		}
		value, residuals := q.Forward(x)
		return autodiff.StraightThrough(value, x, func(dy *graph.Node) *graph.Node {
			return q.Backward(x, value, residuals, dy)
		})
	}
}
