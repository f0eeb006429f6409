package step

import (
	"slices"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/compute/update"
	"github.com/cage-qat/cage/host/model"
)

// quantizeStage maps the quantized parameters and the trained parameters of their
// quantizers to their values Q(x), rotated where the plan leaves them so, and residuals; in training also to the next states
// of the quantizers.
func (p *Plan) quantizeStage() stage {
	specs := inputSpecs(append(p.quantizedParams(), p.trainedWeights()...), update.Param, false)
	keys := p.weightKeys()
	specs = slices.Concat(specs, inputSpecs(p.keptOfWeights(), asNamed, false), keySpecs(weightKeysName, keys), numberSpecs(p.Weights))
	return stage{"quantize", specs, func(_ *graph.Graph, in update.Nodes) update.Nodes {
		addKeys(in, weightKeysName, keys)
		out := update.Nodes{}
		for _, k := range keys { // for updates that quantize again
			out[k.node] = in[k.node]
		}
		for _, t := range p.quantizedParams() {
			q := p.Weights[t.Name]
			x, g := in[update.Param(t.Name)], given(q, t.Name, in)
			value, residuals := q.Forward(x, g)
			out[update.Value(t.Name)] = value
			setNext(out, q, t.Name, q.Next(x, g), nextName)
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
		out[update.Gradient(t.Name)] = dTrained[i]
	}
}

// setNext adds the next state of a quantizer to out, where name gives the names from those of the state; none if it has no next state.
func setNext(out update.Nodes, q lower.Quantizer, site string, next []*graph.Node, name func(kept string) string) {
	for i, node := range next {
		out[name(keptOf(q, site)[i].Name)] = node
	}
}

// initStage maps the quantized parameters to the initial values of the trained
// parameters and states of their quantizers.
func (p *Plan) initStage() stage {
	return stage{"initial quantizer parameters", inputSpecs(p.quantizedParams(), update.Param, false), func(_ *graph.Graph, in update.Nodes) update.Nodes {
		out := update.Nodes{}
		for _, t := range p.quantizedParams() {
			q, x := p.Weights[t.Name], in[update.Param(t.Name)]
			setTrained(out, q, t.Name, q.Init(x))
			setNext(out, q, t.Name, q.InitState(x), asNamed)
		}
		return out
	}}
}

// setTrained adds the initial values of the trained parameters of a quantizer to out.
func setTrained(out update.Nodes, q lower.Quantizer, site string, values []*graph.Node) {
	for i, t := range trainedOf(q, site) {
		out[update.Param(t.Name)] = values[i]
	}
}

// calibrateStage maps weights and tokens to the initial values of the trained parameters and states of the quantizers of activations.
// Each quantizer gets them from the activations of this batch at its site, for which all quantizers before it are active.
// With several replicas they are means over the replicas.
func (p *Plan) calibrateStage() stage {
	return stage{"calibration", append(inputSpecs(p.params(), p.forwardName(false), false), p.tokenSpec()), func(_ *graph.Graph, in update.Nodes) update.Nodes {
		out := update.Nodes{}
		p.Model.Losses(p.weightNodes(in, false), in[tokensName], func(site model.ActivationSite, x *graph.Node) *graph.Node {
			q, ok := p.Activations[site.Name]
			if !ok {
				return x
			}
			trained := replicaMeans(q.Init(x))
			setTrained(out, q, site.Name, trained)
			state := replicaMeans(q.InitState(x))
			setNext(out, q, site.Name, state, asNamed)
			value, _ := q.Forward(x, lower.Given{Trained: trained, State: state})
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

// withNext returns the hook with which a training quantizes: beside what quantize does, it adds the next state of each quantizer
// to next, with the names of the sums over micro-batches.
func withNext(quantize model.ActivationQuantizer, quantizers map[string]lower.Quantizer, in, next update.Nodes) model.ActivationQuantizer {
	if quantize == nil {
		return nil
	}
	return func(site model.ActivationSite, x *graph.Node) *graph.Node {
		if q, ok := quantizers[site.Name]; ok {
			setNext(next, q, site.Name, q.Next(x, given(q, site.Name, in)), sumName)
		}
		return quantize(site, x)
	}
}
