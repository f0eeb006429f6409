package step

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/support/exceptions"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/lower"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/sdk"
)

// quantizeGraph maps the quantized parameters, followed by the trained parameters of
// their quantizers, to their values Q(x), rotated where the plan leaves them so, and
// residuals. layout receives the number of residuals of each.
func (p *Plan) quantizeGraph(layout *[]int) ([]engine.Spec, engine.BuildFunc) {
	all, at := p.paramSpecs(), p.quantized()
	var specs []engine.Spec
	for _, i := range at {
		specs = append(specs, all[i])
	}
	specs = append(specs, trainedSpecs(p.trainedWeights())...)
	return specs, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		var values, residuals []*graph.Node
		*layout = nil
		trained := in[len(at):]
		for k, i := range at {
			q := p.Weights[all[i].Name]
			n := len(q.Trained())
			v, r := q.Forward(in[k], trained[:n])
			values, residuals, trained = append(values, v), append(residuals, r...), trained[n:]
			*layout = append(*layout, len(r))
		}
		return append(values, residuals...)
	}
}

// initGraph maps the quantized parameters to the initial values of the trained
// parameters of their quantizers.
func (p *Plan) initGraph() ([]engine.Spec, engine.BuildFunc) {
	all, at := p.paramSpecs(), p.quantized()
	var specs []engine.Spec
	for _, i := range at {
		specs = append(specs, all[i])
	}
	return specs, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		var out []*graph.Node
		for k, i := range at {
			out = append(out, p.Weights[all[i].Name].Init(in[k])...)
		}
		return out
	}
}

// calibrateGraph maps weights and tokens to the initial values of the trained
// parameters of the quantizers of activations.
func (p *Plan) calibrateGraph() ([]engine.Spec, engine.BuildFunc) {
	weights := p.paramSpecs()
	n := len(weights)
	return append(weights, p.tokenSpec()), func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		var found []*graph.Node
		p.Model.Losses(in[:n], in[n], p.calibrating(&found))
		return found
	}
}

// gradientGraph maps weights as the forward pass uses them, the trained parameters of
// the quantizers of activations, and tokens, to the mean loss and its gradients with
// respect to both. With sum, running sums of the gradients come in and go out. With
// full, activations are not quantized and there are no such parameters.
func (p *Plan) gradientGraph(key gradientKey) ([]engine.Spec, engine.BuildFunc) {
	weights := p.paramSpecs()
	inputs := append([]engine.Spec(nil), weights...)
	if !key.full {
		inputs = append(inputs, trainedSpecs(p.trainedActivations())...)
	}
	specs := append(append([]engine.Spec(nil), inputs...), p.tokenSpec())
	if key.sum {
		for _, w := range inputs {
			specs = append(specs, engine.Spec{Name: "sum." + w.Name, Shape: w.Shape, Donated: true})
		}
	}
	m, n := len(weights), len(inputs)
	return specs, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		var q model.ActivationQuantizer
		if !key.full {
			q = p.hook(in[m:n])
		}
		loss := model.Loss(p.Model, in[:m], in[n], q)
		grads := graph.Gradient(loss, in[:n]...)
		if !key.local {
			loss, grads = meanLoss(loss, grads)
		}
		if key.sum {
			for i, g := range grads {
				grads[i] = graph.Add(in[n+1+i], g)
			}
		}
		return append([]*graph.Node{loss}, grads...)
	}
}

// finishGraph maps the summed gradients of the used weights and of the activations'
// trained parameters to the mean gradients of everything that is trained, through the
// backward passes of the weight quantizers, and to the vector of their squared norms.
func (p *Plan) finishGraph(quantize *engine.Executable, layout []int) ([]engine.Spec, engine.BuildFunc) {
	params, at := p.paramSpecs(), p.quantized()
	own, foreign := trainedSpecs(p.trainedWeights()), trainedSpecs(p.trainedActivations())
	if p.FullPrecision {
		at, quantize = nil, nil // the gradients are those of the parameters already
	}
	var specs []engine.Spec
	for _, s := range append(append([]engine.Spec(nil), params...), foreign...) {
		specs = append(specs, engine.Spec{Name: "sum." + s.Name, Shape: s.Shape})
	}
	for _, i := range at {
		specs = append(specs, params[i])
	}
	specs = append(specs, own...)
	if quantize != nil {
		for i, shape := range quantize.Outputs() {
			specs = append(specs, engine.Spec{Name: fmt.Sprintf("quantize.%d", i), Shape: shape})
		}
	}
	return specs, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		next := func(n int) []*graph.Node {
			part := in[:n:n]
			in = in[n:]
			return part
		}
		grads, activation := next(len(params)), next(len(foreign))
		x, trained, values, residuals := next(len(at)), next(len(own)), next(len(at)), in
		var dTrained []*graph.Node
		for k, i := range at {
			q := p.Weights[params[i].Name]
			n := len(q.Trained())
			at := lower.Point{X: x[k], Trained: trained[:n], Value: values[k]}
			dx, d := q.Backward(at, residuals[:layout[k]], grads[i])
			grads[i], dTrained = dx, append(dTrained, d...)
			trained, residuals = trained[n:], residuals[layout[k]:]
		}
		return p.meanAndNorms(append(append(grads, dTrained...), activation...))
	}
}

// meanAndNorms divides gradients that were summed over micro-batches and replicas by
// their number and appends the vector of their squared norms.
func (p *Plan) meanAndNorms(grads []*graph.Node) []*graph.Node {
	norms := make([]*graph.Node, len(grads))
	for i, g := range grads {
		if n := p.Accumulate * engine.Replicas(g.Graph()); n > 1 {
			g = graph.MulScalar(g, 1/float64(n))
			grads[i] = g
		}
		norms[i] = graph.Reshape(sumOfSquares(g), 1)
	}
	return append(grads, graph.Concatenate(norms, 0))
}

// sumOfSquares adds up rows first: one running sum over millions of squares would
// lose what is small beside it, 0.4 % of the sum for 8192 × 4096 equal elements.
func sumOfSquares(x *graph.Node) *graph.Node {
	if x.Shape().IsScalar() {
		return graph.Mul(x, x)
	}
	return graph.ReduceAllSum(graph.ReduceSum(graph.Mul(x, x), -1))
}

// rulesInputs declares the inputs of all rules and one vector of scalars, and returns
// a function that sorts them by rule and name.
func rulesInputs(rules []cage.Rule) ([]engine.Spec, func(in []*graph.Node) []map[string]*graph.Node) {
	var specs []engine.Spec
	var fill []func(in []map[string]*graph.Node, n *graph.Node) // of each spec
	for i, r := range rules {
		for _, input := range r.Inputs() {
			if isScalar(input.Name) {
				continue
			}
			specs = append(specs, engine.Spec{Name: input.Name + " of " + r.Name, Shape: floats(input.Type.Shape...)})
			fill = append(fill, func(in []map[string]*graph.Node, n *graph.Node) { in[i][input.Name] = n })
		}
	}
	specs = append(specs, engine.Spec{Name: "scalars", Shape: floats(len(cage.Scalars))})
	return specs, func(in []*graph.Node) []map[string]*graph.Node {
		inputs := make([]map[string]*graph.Node, len(rules))
		for i := range rules {
			inputs[i] = unpackScalars(in[len(in)-1])
		}
		for j, set := range fill {
			set(inputs, in[j])
		}
		return inputs
	}
}

// rulesGraph declares the inputs of all rules and returns a function that builds the
// rules one after the other.
func (p *Plan) rulesGraph(rules []cage.Rule, update UpdateFunc) ([]engine.Spec, func(in []*graph.Node) []map[string]*graph.Node) {
	specs, sort := rulesInputs(rules)
	return specs, func(in []*graph.Node) []map[string]*graph.Node {
		inputs := sort(in)
		out := make([]map[string]*graph.Node, len(rules))
		for i, r := range rules {
			out[i] = update(r, inputs[i])
		}
		return out
	}
}

// updateGraph maps what the rules read to new parameters and states, and to a vector of
// each measure over the rules that have it.
func (p *Plan) updateGraph(rules []cage.Rule) ([]engine.Spec, engine.BuildFunc) {
	specs, sort := rulesInputs(rules)
	return specs, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		var xs, states []*graph.Node
		measures := map[string][]*graph.Node{}
		for i, out := range p.updates(g, rules, sort(in)) {
			xs = append(xs, out[cage.OutputX])
			for _, s := range rules[i].State() {
				states = append(states, out[sdk.StatePrefix+s.Name])
			}
			for _, name := range rules[i].Measures() {
				measures[name] = append(measures[name], graph.Reshape(out[name], 1))
			}
		}
		out := append(xs, states...)
		for _, name := range measured(rules) {
			out = append(out, graph.Concatenate(measures[name], 0))
		}
		return out
	}
}

// measured are the measures of the rules: all that have any have the same, those with a
// quantizer.
func measured(rules []cage.Rule) []string {
	for _, r := range rules {
		if list := r.Measures(); len(list) > 0 {
			return list
		}
	}
	return nil
}

func isScalar(name string) bool { return slices.Contains(cage.Scalars, name) }

// unpackScalars gives the elements of the vector of scalars their names.
func unpackScalars(v *graph.Node) map[string]*graph.Node {
	in := map[string]*graph.Node{}
	for i, name := range cage.Scalars {
		in[name] = graph.Reshape(graph.Slice(v, graph.AxisRange(i, i+1)))
	}
	return in
}

// forwardSpecs are the inputs of a forward pass before the tokens: weights and the
// trained parameters of the quantizers of activations.
func (p *Plan) forwardSpecs() (specs []engine.Spec, weights int) {
	params := p.paramSpecs()
	return append(params, trainedSpecs(p.trainedActivations())...), len(params)
}

// lossGraph maps weights, trained parameters, tokens and the number of each replica to
// the loss of every token of all replicas.
func (p *Plan) lossGraph() ([]engine.Spec, engine.BuildFunc) {
	specs, m := p.forwardSpecs()
	n := len(specs)
	return append(specs, p.tokenSpec(), replicaSpec), func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		return []*graph.Node{gathered(p.Model.Losses(in[:m], in[n], p.hook(in[m:n])), in[n+1])}
	}
}

// logitsGraph maps weights, trained parameters and tokens [batch, context] to logits.
func (p *Plan) logitsGraph() ([]engine.Spec, engine.BuildFunc) {
	specs, m := p.forwardSpecs()
	n := len(specs)
	tokens := engine.Spec{Name: "tokens", Shape: shapes.Make(dtypes.Int32, p.Batch, p.Context)}
	return append(specs, tokens), func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		language, ok := p.Model.(model.Language)
		if !ok {
			exceptions.Panicf("the model does not predict tokens")
		}
		return []*graph.Node{language.Logits(in[:m], in[n], p.hook(in[m:n]))}
	}
}

// paretoGraph maps gradients, parameters and values of the quantized parameters and
// λ to the vector of their shares of ‖P_λ‖².
func (p *Plan) paretoGraph() ([]engine.Spec, engine.BuildFunc) {
	params := p.paramSpecs()
	at := p.quantized()
	var specs []engine.Spec
	for _, prefix := range []string{"gradient.", "", "value."} {
		for _, i := range at {
			specs = append(specs, engine.Spec{Name: prefix + params[i].Name, Shape: params[i].Shape})
		}
	}
	n := len(at)
	specs = append(specs, engine.Spec{Name: cage.InputLambda, Shape: floats()})
	return specs, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		shares := make([]*graph.Node, n)
		for k, i := range at {
			prog, err := cage.ParetoNorm2(p.Rules[i])
			if err != nil {
				panic(err)
			}
			out := lower.Lower(g, prog, []*graph.Node{in[k], in[n+k], in[2*n+k], in[3*n]})
			shares[k] = graph.Reshape(out[cage.OutputNorm2], 1)
		}
		return []*graph.Node{graph.Concatenate(shares, 0)}
	}
}
