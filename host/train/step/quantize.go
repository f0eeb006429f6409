package step

import (
	"slices"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/compute/update"
	"github.com/cage-qat/cage/sdk/program"
)

// quantizeStage maps the quantized parameters and the trained parameters of their quantizers to
// their values Q(x), rotated if the plan keeps them rotated, and residuals; in training also to the
// next states of the quantizers. It also returns those merged weights that the forward or the
// backward pass reads.
func (p *Plan) quantizeStage() update.Stage {
	parameters, keys := append(p.quantizeInputs(), p.weightQuantizerParameters()...), p.keys.weights
	specs := slices.Concat(inputSpecs(parameters, program.KindParam.Of, false),
		inputSpecs(p.weightQuantizerStates(), asNamed, false),
		keySpecs(weightKeysName, keys), numberSpecs(p.Weights))
	return update.Stage{Name: "quantize", Inputs: specs, Build: func(in update.Nodes) update.Nodes {
		addKeys(in, weightKeysName, keys)
		out := update.Nodes{}
		for _, k := range keys { // for updates that quantize again
			out[k.node] = in[k.node]
		}
		read := slices.DeleteFunc(p.params(), func(t Tensor) bool { return p.Weights[t.Name] != nil })
		for _, t := range append(read, p.unquantizedWeights()...) {
			if p.adapter(t.Name) != nil {
				out[p.pointName(t.Name)] = p.point(t, in, nil)
			}
		}
		var last *graph.Node
		for _, t := range p.quantizedParams() {
			q := p.Weights[t.Name]
			x, g := p.point(t, in, last), quantizerInputs(q, t.Name, in)
			value, residuals, codes := q.Forward(x, g)
			if out[program.KindValue.Of(t.Name)] = value; t.frozen {
				last = value
			}
			setNext(out, q, t.Name, q.Next(x, g), nextName)
			for i := range p.codes[t.Name] {
				out[codeName(t.Name, i)] = codes[i]
			}
			for i, r := range residuals {
				out[residualName(t.Name, i)] = r
			}
		}
		return out
	}}
}

// setNext adds the next states of a quantizer, if it has any, to out. name returns the name of a
// state's next value.
func setNext(
	out update.Nodes, q lower.Quantizer, site string, next []*graph.Node,
	name func(state string) string,
) {
	for i, node := range next {
		out[name(statesOf(q, site)[i].Name)] = node
	}
}

// addGradient adds gradient to that of a tensor in out: several sites may share the tensor.
func addGradient(out update.Nodes, tensor string, gradient *graph.Node) {
	name := program.KindGradient.Of(tensor)
	if before := out[name]; before != nil {
		gradient = engine.Elementwise(func(of []*graph.Node) *graph.Node {
			return graph.Add(of[0], of[1])
		}, before, gradient)
	}
	out[name] = gradient
}
