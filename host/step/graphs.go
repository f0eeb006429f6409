package step

import (
	"fmt"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/lower"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/sdk"
)

// quantizeGraph maps the quantized parameters to their values Q(x) and residuals.
// layout receives the number of residuals of each.
func (p *Plan) quantizeGraph(layout *[]int) ([]engine.Spec, engine.BuildFunc) {
	all := p.paramSpecs()
	var specs []engine.Spec
	for _, i := range p.quantized() {
		specs = append(specs, all[i])
	}
	return specs, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		var values, residuals []*graph.Node
		*layout = nil
		for k, i := range p.quantized() {
			v, r := p.Weights[all[i].Name].Forward(in[k])
			values = append(values, v)
			residuals = append(residuals, r...)
			*layout = append(*layout, len(r))
		}
		return append(values, residuals...)
	}
}

// gradientGraph maps weights as the forward pass uses them, and tokens, to the mean
// loss and its gradients with respect to these weights. With sum, running sums of
// the gradients come in and go out.
func (p *Plan) gradientGraph(q model.ActivationQuantizer, sum bool) ([]engine.Spec, engine.BuildFunc) {
	weights := p.paramSpecs()
	specs := append(append([]engine.Spec(nil), weights...), p.tokenSpec())
	if sum {
		for _, w := range weights {
			specs = append(specs, engine.Spec{Name: "sum." + w.Name, Shape: w.Shape})
		}
	}
	n := len(weights)
	return specs, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		loss := model.Loss(p.Model, in[:n], in[n], q)
		grads := graph.Gradient(loss, in[:n]...)
		if sum {
			for i, g := range grads {
				grads[i] = graph.Add(in[n+1+i], g)
			}
		}
		return append([]*graph.Node{loss}, grads...)
	}
}

// finishGraph maps the summed gradients of the used weights to the mean gradients
// of the parameters, through the backward passes of the weight quantizers, and to
// the vector of their squared norms.
func (p *Plan) finishGraph(quantize *engine.Executable, layout []int) ([]engine.Spec, engine.BuildFunc) {
	params := p.paramSpecs()
	at := p.quantized()
	specs := make([]engine.Spec, 0, 4*len(params))
	for _, s := range params {
		specs = append(specs, engine.Spec{Name: "sum." + s.Name, Shape: s.Shape})
	}
	for _, i := range at {
		specs = append(specs, params[i])
	}
	if quantize != nil {
		for i, shape := range quantize.Outputs() {
			specs = append(specs, engine.Spec{Name: fmt.Sprintf("quantize.%d", i), Shape: shape})
		}
	}
	return specs, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		grads := append([]*graph.Node(nil), in[:len(params)]...)
		x, values, residuals := in[len(params):], in[len(params)+len(at):], in[len(params)+2*len(at):]
		for k, i := range at {
			n := layout[k]
			grads[i] = p.Weights[params[i].Name].Backward(x[k], values[k], residuals[:n], grads[i])
			residuals = residuals[n:]
		}
		norms := make([]*graph.Node, len(grads))
		for i, g := range grads {
			if p.Accumulate > 1 {
				g = graph.MulScalar(g, 1/float64(p.Accumulate))
				grads[i] = g
			}
			norms[i] = graph.Reshape(sumOfSquares(g), 1)
		}
		return append(grads, graph.Concatenate(norms, 0))
	}
}

// sumOfSquares adds up rows first: one running sum over millions of squares would
// lose what is small beside it, 0.4 % of the sum for 8192 × 4096 equal elements.
func sumOfSquares(x *graph.Node) *graph.Node {
	return graph.ReduceAllSum(graph.ReduceSum(graph.Mul(x, x), -1))
}

// updateGraph maps parameters, gradients, the values Q(x) of those rules that need
// them, states and scalars to new parameters and states, and with statistics to the
// vectors Σe² and Σx² over the quantized parameters.
func (p *Plan) updateGraph(rules []cage.Rule) ([]engine.Spec, engine.BuildFunc) {
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
	update := p.Update
	if update == nil {
		update = lowerRule
	}
	return specs, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		inputs := make([]map[string]*graph.Node, len(rules))
		for i := range rules {
			inputs[i] = unpackScalars(in[len(in)-1])
		}
		for j, set := range fill {
			set(inputs, in[j])
		}
		var xs, states, e2, x2 []*graph.Node
		for i, r := range rules {
			out := update(r, inputs[i])
			xs = append(xs, out[cage.OutputX])
			for _, s := range r.Optimizer.State {
				states = append(states, out[sdk.StatePrefix+s.Name])
			}
			if r.Statistics {
				e2 = append(e2, graph.Reshape(out[cage.OutputErrorNorm2], 1))
				x2 = append(x2, graph.Reshape(out[cage.OutputValueNorm2], 1))
			}
		}
		out := append(xs, states...)
		if len(e2) > 0 {
			out = append(out, graph.Concatenate(e2, 0), graph.Concatenate(x2, 0))
		}
		return out
	}
}

func isScalar(name string) bool {
	for _, s := range cage.Scalars {
		if s == name {
			return true
		}
	}
	return false
}

// unpackScalars gives the elements of the vector of scalars their names.
func unpackScalars(v *graph.Node) map[string]*graph.Node {
	in := map[string]*graph.Node{}
	for i, name := range cage.Scalars {
		in[name] = graph.Reshape(graph.Slice(v, graph.AxisRange(i, i+1)))
	}
	return in
}

// lossGraph maps weights and tokens to the loss of every token.
func (p *Plan) lossGraph() ([]engine.Spec, engine.BuildFunc) {
	weights := p.paramSpecs()
	n := len(weights)
	return append(weights, p.tokenSpec()), func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		return []*graph.Node{p.Model.TokenLosses(in[:n], in[n], activations(p.Activations))}
	}
}

// logitsGraph maps weights and tokens [batch, context] to logits.
func (p *Plan) logitsGraph() ([]engine.Spec, engine.BuildFunc) {
	weights := p.paramSpecs()
	n := len(weights)
	tokens := engine.Spec{Name: "tokens", Shape: shapes.Make(dtypes.Int32, p.Batch, p.Context)}
	return append(weights, tokens), func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		return []*graph.Node{p.Model.Logits(in[:n], in[n], activations(p.Activations))}
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
			prog, err := cage.ParetoNorm2(params[i].Name, params[i].Shape.Dimensions...)
			if err != nil {
				panic(err)
			}
			out := lower.Lower(g, prog, []*graph.Node{in[k], in[n+k], in[2*n+k], in[3*n]})
			shares[k] = graph.Reshape(out[cage.OutputNorm2], 1)
		}
		return []*graph.Node{graph.Concatenate(shares, 0)}
	}
}
