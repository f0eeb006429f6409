package step

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/compute/update"
	"github.com/cage-qat/cage/host/method/cage"
	"github.com/cage-qat/cage/sdk"
)

// CodeReader reads the codes and residuals of chosen elements of quantized weights. It
// quantizes the weights anew and copies only those elements to the host.
//
// The codes are the integers that the quantizer's program returns, which belong to the
// domain it quantizes in: with a rotation, code i belongs to element i of the rotated
// weight. For a quantizer that returns no codes, the bits of the value Q(x) take their
// place: two elements have the same code exactly when their values are equal, so a code
// also changes when only the scale does. Residuals are x − Q(x) of the weight's own
// elements, which is what the correction is made of; with a rotation, residual i and code
// i belong to the same block but not to the same number.
type CodeReader struct{ exec *executable }

// WeightElements gives the positions of chosen elements in the flat tensor of a weight.
type WeightElements struct {
	Weight    string
	Positions []int32
}

// CodeReader compiles a reader of the chosen elements: at least one of each weight named,
// all of which must be quantized.
func (c *Compiled) CodeReader(chosen []WeightElements) (*CodeReader, error) {
	rules := make([]cage.Rule, len(chosen))
	for i, e := range chosen {
		at := slices.IndexFunc(c.plan.Rules, func(r cage.Rule) bool { return r.Name == e.Weight && r.Quantizer != nil })
		if at < 0 {
			return nil, fmt.Errorf("step: codes of %s: it is no quantized weight", e.Weight)
		}
		rules[i] = c.plan.Rules[at]
		n := size(rules[i].Shape)
		if len(e.Positions) == 0 || slices.Min(e.Positions) < 0 || int(slices.Max(e.Positions)) >= n {
			return nil, fmt.Errorf("step: codes of %s: want at least one position, all from 0 to %d", e.Weight, n-1)
		}
	}
	e, err := codesStage(rules, chosen).compile(c.dev)
	return &CodeReader{e}, err
}

// Close frees the executable.
func (r *CodeReader) Close() { r.exec.exec.Close() }

// Read returns the code and the residual of every chosen element, weight after weight.
func (r *CodeReader) Read(s *State) (codes []int32, residuals []float32, err error) {
	t := maps.Clone(s.Tensors)
	if err := r.exec.run(t); err != nil {
		return nil, nil, err
	}
	defer engine.FinalizeAll(t["codes"], t["residuals"])
	if codes, err = engine.Download[int32](t["codes"]); err != nil {
		return nil, nil, err
	}
	residuals, err = engine.Download[float32](t["residuals"])
	return codes, residuals, err
}

// codesStage maps weights and their quantizers' trained parameters to the codes and the
// residuals of the chosen elements.
func codesStage(rules []cage.Rule, chosen []WeightElements) stage {
	reads := make([][]Tensor, len(rules)) // by each quantizer's program
	for i, r := range rules {
		reads[i] = quantizerInputs(r)
	}
	specs := inputs(slices.Concat(reads...), update.Param, false)
	return stage{"codes", specs, func(g *graph.Graph, in update.Nodes) update.Nodes {
		var codes, residuals []*graph.Node
		for i, r := range rules {
			var args []*graph.Node
			for _, t := range reads[i] {
				args = append(args, in[update.Param(t.Name)])
			}
			code, value := codesOf(*r.Quantizer, args)
			at := engine.Constant(g, chosen[i].Positions, len(chosen[i].Positions), 1)
			codes = append(codes, elements(code, at))
			residuals = append(residuals, graph.Sub(elements(args[0], at), elements(value, at)))
		}
		return update.Nodes{"codes": graph.Concatenate(codes, 0), "residuals": graph.Concatenate(residuals, 0)}
	}}
}

// codesOf returns the codes and values of a weight.
func codesOf(q sdk.QuantizerProgram, in []*graph.Node) (codes, value *graph.Node) {
	out := lower.Lower(in[0].Graph(), lower.Only(q.Program, sdk.OutputValue, sdk.OutputCodes), in)
	value = out[sdk.OutputValue]
	if codes = out[sdk.OutputCodes]; codes == nil {
		zero := graph.ScalarZero(value.Graph(), value.DType())
		value := graph.Where(graph.Equal(value, zero), zero, value) // −0 is 0
		return graph.Bitcast(value, dtypes.Int32), out[sdk.OutputValue]
	}
	return graph.ConvertDType(codes, dtypes.Int32), value
}

// elements gathers elements of x by their flat positions, [n, 1].
func elements(x, at *graph.Node) *graph.Node {
	return graph.Gather(graph.Reshape(x, x.Shape().Size()), at)
}
