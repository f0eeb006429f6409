package step

import (
	"cmp"
	"slices"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/compute/update"
	"github.com/cage-qat/cage/host/model"
)

// quantizeStage maps the quantized parameters and the trained parameters of their
// quantizers to their values Q(x), rotated where the plan leaves them so, and residuals.
func (p *Plan) quantizeStage() stage {
	specs := inputSpecs(append(p.quantizedParams(), p.trainedWeights()...), update.Param, false)
	keys := p.weightKeys()
	specs = slices.Concat(specs, keySpecs(weightKeysName, keys), numberSpecs(p.Weights))
	return stage{"quantize", specs, func(_ *graph.Graph, in update.Nodes) update.Nodes {
		addKeys(in, weightKeysName, keys)
		out := update.Nodes{}
		for _, k := range keys { // for updates that quantize again
			out[k.node] = in[k.node]
		}
		for _, t := range p.quantizedParams() {
			q := p.Weights[t.Name]
			value, residuals := q.Forward(in[update.Param(t.Name)], given(q, t.Name, in))
			out[update.Value(t.Name)] = value
			if c, ok := lower.CodesOf(value); ok && p.codes[t.Name] != nil {
				for i, part := range c.Parts {
					out[codeName(t.Name, i)] = part
				}
			}
			for i, r := range residuals {
				out[residualName(t.Name, i)] = r
			}
		}
		return out
	}}
}

// quantizerBackward adds to out the gradients with respect to a weight x and its quantizer's trained parameters. dy is the
// gradient with respect to Q(x).
func (p *Plan) quantizerBackward(weight string, in update.Nodes, dy *graph.Node, out update.Nodes) {
	q := p.Weights[weight]
	at := lower.Point{X: in[update.Param(weight)], Given: given(q, weight, in), Value: in[update.Value(weight)]}
	dx, dTrained := q.Backward(at, numberedNodes(in, residualName, weight), dy)
	out[update.Gradient(weight)] = dx
	for i, t := range trainedOf(q, weight) {
		addGradient(out, t.Name, dTrained[i])
	}
}

// addGradient adds to the gradient with respect to a tensor, which several sites may share.
func addGradient(out update.Nodes, tensor string, gradient *graph.Node) {
	name := update.Gradient(tensor)
	if before := out[name]; before != nil {
		gradient = graph.Add(before, gradient)
	}
	out[name] = gradient
}

// initStage maps the quantized parameters to the initial values of the trained
// parameters of their quantizers.
func (p *Plan) initStage() stage {
	return stage{"initial quantizer parameters", inputSpecs(p.quantizedParams(), update.Param, false), func(_ *graph.Graph, in update.Nodes) update.Nodes {
		out := update.Nodes{}
		for _, t := range p.quantizedParams() {
			setTrained(nil, out, p.Weights[t.Name], t.Name, p.Weights[t.Name].Init(in[update.Param(t.Name)]))
		}
		return out
	}}
}

// setTrained adds the initial values of the trained parameters of a quantizer to out, and returns what the site then has: a
// parameter that another site shares and came first with keeps its value, which is in out already, or in in.
func setTrained(in, out update.Nodes, q lower.Quantizer, site string, values []*graph.Node) []*graph.Node {
	for i, t := range trainedOf(q, site) {
		name := update.Param(t.Name)
		if have := cmp.Or(in[name], out[name]); have != nil {
			values[i] = have
		} else {
			out[name] = values[i]
		}
	}
	return values
}

// calibrateStage maps weights and tokens to the initial values of the trained parameters of the quantizers of activations.
// Each quantizer gets them from the activations of this batch at its site, for which all quantizers before it are active.
// With several replicas they are means over the replicas.
func (p *Plan) calibrateStage() stage {
	specs := append(inputSpecs(p.params(), p.forwardName(false), false), inputSpecs(p.trainedShared(), update.Param, false)...)
	return stage{"calibration", append(specs, p.tokenSpec()), func(_ *graph.Graph, in update.Nodes) update.Nodes {
		out := update.Nodes{}
		p.Model.Losses(p.weightNodes(in, false), in[tokensName], func(site model.ActivationSite, x *graph.Node) *graph.Node {
			q, ok := p.Activations[site.Name]
			if !ok {
				return x
			}
			trained := setTrained(in, out, q, site.Name, replicaMeans(q.Init(x)))
			value, _ := q.Forward(x, lower.Given{Trained: trained})
			return value
		})
		return out
	}}
}

// activationQuantizer returns the function with which a model's graph quantizes its activations. in has the nodes of the
// quantizers' trained parameters, and of their keys.
func activationQuantizer(quantizers map[string]lower.Quantizer, in update.Nodes) model.ActivationQuantizer {
	if len(quantizers) == 0 {
		return nil
	}
	return func(site model.ActivationSite, x *graph.Node) *graph.Node {
		if q, ok := quantizers[site.Name]; ok {
			return lower.Quantize(x, given(q, site.Name, in), q)
		}
		return x
	}
}
