package lower

import (
	"fmt"

	device "github.com/cage-qat/cage/host/engine/autodiff"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/gomlx/gomlx/core/graph"
)

// Quantizer is the fake quantization of one tensor inside graphs, in two parts
// that may stand in different graphs. Its methods build graphs and panic as
// [Lower] does.
type Quantizer interface {
	// Forward returns Q(x) and the residuals that Backward needs beside x and
	// Q(x).
	Forward(x *graph.Node) (value *graph.Node, residuals []*graph.Node)
	// Backward returns the gradient on x from dy, that on Q(x).
	Backward(x, value *graph.Node, residuals []*graph.Node, dy *graph.Node) *graph.Node
}

// NewQuantizer prepares a quantizer's program, which must have passed its check:
// the forward part returns the value, the backward part differentiates the
// surrogate with respect to x.
func NewQuantizer(p *program.Program) (Quantizer, error) {
	parts, err := autodiff.Split(p, []string{sdk.OutputValue}, sdk.OutputSurrogate, sdk.InputX)
	if err != nil {
		return nil, fmt.Errorf("gradient of the surrogate: %w", err)
	}
	return programQuantizer{parts}, nil
}

// programQuantizer inlines a program divided into its forward and backward parts.
type programQuantizer struct{ parts *autodiff.Partition }

func (q programQuantizer) Forward(x *graph.Node) (*graph.Node, []*graph.Node) {
	out := Lower(x.Graph(), q.parts.Forward, []*graph.Node{x})
	var residuals []*graph.Node
	for _, r := range q.parts.Residuals {
		if !r.Input && r.Name != sdk.OutputValue {
			residuals = append(residuals, out[r.Name])
		}
	}
	return out[sdk.OutputValue], residuals
}

func (q programQuantizer) Backward(x, value *graph.Node, residuals []*graph.Node, dy *graph.Node) *graph.Node {
	inputs := make([]*graph.Node, 0, len(q.parts.Residuals)+1)
	for _, r := range q.parts.Residuals {
		switch {
		case r.Input:
			inputs = append(inputs, x)
		case r.Name == sdk.OutputValue:
			inputs = append(inputs, value)
		default:
			inputs, residuals = append(inputs, residuals[0]), residuals[1:]
		}
	}
	out := Lower(dy.Graph(), q.parts.Backward, append(inputs, dy))
	return out[autodiff.Prefix+sdk.InputX]
}

// Quantize returns Q(x), bit for bit the forward value, whose gradient is that of
// the surrogate.
func Quantize(x *graph.Node, q Quantizer) *graph.Node {
	value, residuals := q.Forward(x)
	return device.StraightThrough(value, x, func(dy *graph.Node) *graph.Node {
		return q.Backward(x, value, residuals, dy)
	})
}
