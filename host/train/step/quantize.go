package step

import (
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/compute/update"
	"github.com/cage-qat/cage/host/model"
)

// quantizeStage maps the quantized parameters and the trained parameters of their
// quantizers to their values Q(x), rotated where the plan leaves them so, and residuals.
func (p *Plan) quantizeStage() stage {
	specs := inputs(append(p.quantizedParams(), p.trainedWeights()...), update.Param, false)
	return stage{"quantize", specs, func(_ *graph.Graph, in update.Nodes) update.Nodes {
		out := update.Nodes{}
		for _, t := range p.quantizedParams() {
			q := p.Weights[t.Name]
			value, residuals := q.Forward(in[update.Param(t.Name)], trainedNodes(q, t.Name, in))
			out[update.Value(t.Name)] = value
			if c, ok := lower.CodesOf(value); ok && p.codes[t.Name] != nil {
				for i, part := range c.Parts {
					out[code(t.Name, i)] = part
				}
			}
			for i, r := range residuals {
				out[residual(t.Name, i)] = r
			}
		}
		return out
	}}
}

// trainedNodes are the trained parameters of the quantizer of a weight or site.
func trainedNodes(q lower.Quantizer, site string, in update.Nodes) []*graph.Node {
	var list []*graph.Node
	for _, t := range trainedOf(q, site) {
		list = append(list, in[update.Param(t.Name)])
	}
	return list
}

// backward maps the gradient with respect to Q(x) of a weight to those with respect to x
// and to its quantizer's trained parameters.
func (p *Plan) backward(weight string, in update.Nodes, dy *graph.Node, out update.Nodes) {
	q := p.Weights[weight]
	at := lower.Point{X: in[update.Param(weight)], Trained: trainedNodes(q, weight, in), Value: in[update.Value(weight)]}
	dx, dTrained := q.Backward(at, numberedNodes(in, residual, weight), dy)
	out[update.Gradient(weight)] = dx
	for i, t := range trainedOf(q, weight) {
		out[update.Gradient(t.Name)] = dTrained[i]
	}
}

// initStage maps the quantized parameters to the initial values of the trained
// parameters of their quantizers.
func (p *Plan) initStage() stage {
	return stage{"initial quantizer parameters", inputs(p.quantizedParams(), update.Param, false), func(_ *graph.Graph, in update.Nodes) update.Nodes {
		out := update.Nodes{}
		for _, t := range p.quantizedParams() {
			addInit(out, p.Weights[t.Name], t.Name, p.Weights[t.Name].Init(in[update.Param(t.Name)]))
		}
		return out
	}}
}

func addInit(out update.Nodes, q lower.Quantizer, site string, values []*graph.Node) {
	for i, t := range trainedOf(q, site) {
		out[update.Param(t.Name)] = values[i]
	}
}

// calibrateStage maps weights and tokens to the initial values of the trained parameters
// of the quantizers of activations: each from the first activations that arrive at its
// site, quantized upstream already. Of several replicas it takes the mean.
func (p *Plan) calibrateStage() stage {
	return stage{"calibration", append(inputs(p.params(), p.used(false), false), p.tokenSpec()), func(_ *graph.Graph, in update.Nodes) update.Nodes {
		out := update.Nodes{}
		p.Model.Losses(p.weightNodes(in, false), in[tokensName], func(site model.ActivationSite, x *graph.Node) *graph.Node {
			q, ok := p.Activations[site.Name]
			if !ok {
				return x
			}
			trained := meanAcross(q.Init(x))
			addInit(out, q, site.Name, trained)
			value, _ := q.Forward(x, trained)
			return value
		})
		return out
	}}
}

// activationHook is what quantizes the activations in a model's graph. in has the nodes of the quantizers' trained parameters.
func activationHook(quantizers map[string]lower.Quantizer, in update.Nodes) model.ActivationQuantizer {
	if len(quantizers) == 0 {
		return nil
	}
	return func(site model.ActivationSite, x *graph.Node) *graph.Node {
		if q, ok := quantizers[site.Name]; ok {
			return lower.Quantize(x, trainedNodes(q, site.Name, in), q)
		}
		return x
	}
}
