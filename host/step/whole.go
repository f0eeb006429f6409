package step

import (
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/engine"
)

// whole is a step as one executable.
type whole struct {
	exec   *engine.Executable
	donate []bool
	losses int // numbers of each kind in the vector that the host reads
	norms  int
	// measures are those that follow, each of so many quantized parameters.
	measures  []string
	quantized int
}

// whole compiles the step with one form of the correction. It always has the
// statistics, where anything is quantized: they are sums over what the step has anyway,
// after a rotation of weights that stay rotated, and a variant without them would be one
// more program to compile, which takes an accelerator's compiler as long as thousands of
// such sums.
func (k *Kernels) whole(form cage.Form) (*whole, error) {
	if w, ok := k.wholes[form]; ok {
		return w, nil
	}
	quantized := len(k.plan.quantized())
	rules := k.plan.rules(updateKey{form: form, statistics: quantized > 0})
	specs, build := k.wholeGraph(k.newUpdate(rules))
	exec, err := k.dev.Compile("step ("+string(form)+")", specs, build)
	if err != nil {
		return nil, err
	}
	w := &whole{exec: exec, losses: k.plan.Accumulate, norms: len(rules), measures: measured(rules), quantized: quantized}
	for _, s := range specs {
		w.donate = append(w.donate, s.Donated)
	}
	k.wholes[form] = w
	return w, nil
}

// wholeGraph maps everything that is trained, the optimizers' states, the tokens of all
// micro-batches and the scalars to the new parameters and states, and to one vector:
// the losses of the micro-batches, the squared norms of the gradients, and the measures
// of the quantized parameters. Where loss or norm is not finite
// parameters and states come out as they went in.
//
// It is made of the graphs of the chain, of which nothing is computed otherwise.
func (k *Kernels) wholeGraph(u *update) ([]engine.Spec, engine.BuildFunc) {
	p := &k.plan
	specs, count := p.stateSpecs()
	replaced := len(specs)
	specs = append(specs, k.stackedTokens(), engine.Spec{Name: "scalars", Shape: floats(len(cage.Scalars))})
	_, update := p.updateGraph(u.rules)
	return specs, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		old, tokens, scalars := in[:replaced:replaced], in[replaced], in[replaced+1]
		have := values[*graph.Node]{params: old[:len(p.Rules):len(p.Rules)]}
		states := old[len(p.Rules):]
		for _, n := range count {
			have.optimizer, states = append(have.optimizer, states[:n]), states[n:]
		}
		losses, norms := k.wholeGradients(g, &have, tokens)
		out := update(g, append(collect(u.sources, have), p.withClip(scalars, norms)))
		ok := graph.LogicalAnd(allFinite(losses), allFinite(norms))
		for i, x := range old {
			out[i] = graph.Where(ok, out[i], x)
		}
		read := append([]*graph.Node{losses, norms}, out[replaced:]...)
		return append(out[:replaced:replaced], graph.Concatenate(read, 0))
	}
}

// wholeGradients adds the quantized weights and the mean gradients of everything that is
// trained to what the update has. It returns the losses of the micro-batches and the
// squared norms of the gradients.
func (k *Kernels) wholeGradients(g *graph.Graph, have *values[*graph.Node], tokens *graph.Node) (losses, norms *graph.Node) {
	p := &k.plan
	at := p.quantized()
	trained := append(pick(have.params, at), ofWeights(k, have.params)...)
	var quantized []*graph.Node // values and residuals
	if len(at) > 0 {
		_, quantize := p.quantizeGraph(new([]int))
		quantized = quantize(g, trained)
	}
	have.quantized = quantized[:len(at)]
	losses, sums := meanLoss(k.accumulated(g, have.params, have.quantized, tokens))
	if !p.FullPrecision {
		sums = slices.Concat(sums, trained, quantized)
	}
	_, finish := p.finishGraph(k.quantize, k.layout)
	out := finish(g, sums)
	last := len(out) - 1
	have.gradients = out[:last]
	return losses, out[last]
}

// stateSpecs are the inputs for everything that a step replaces, in the order of the
// outputs that replace them, and the number of states of each rule.
func (p *Plan) stateSpecs() (specs []engine.Spec, states []int) {
	specs = p.tensorSpecs()
	for _, r := range p.Rules {
		list := r.State()
		for _, t := range list {
			specs = append(specs, engine.Spec{Name: statePrefix + r.Name + "/" + t.Name, Shape: floats(t.Shape...)})
		}
		states = append(states, len(list))
	}
	for i := range specs {
		specs[i].Donated = true
	}
	return specs, states
}

// stackedTokens is the input for all micro-batches of a replica.
func (k *Kernels) stackedTokens() engine.Spec {
	dims := append([]int{k.plan.Accumulate}, k.plan.batchDims()...)
	return engine.Spec{Name: "tokens", Shape: shapes.Make(dtypes.Int32, dims...), Sharded: true}
}

// withClip puts the clip factor that follows from the squared norms of the gradients
// into the vector of scalars. It is computed in float64, as the host does.
func (p *Plan) withClip(scalars, norms *graph.Node) *graph.Node {
	if p.Clip <= 0 {
		return scalars
	}
	norm := graph.Sqrt(sum64(norms))
	factor := graph.Div(graph.Const(norm.Graph(), p.Clip), graph.AddScalar(norm, clipEpsilon))
	factor = graph.ConvertDType(graph.Min(factor, graph.OnesLike(factor)), dtypes.Float32)
	parts := make([]*graph.Node, len(cage.Scalars))
	for i, name := range cage.Scalars {
		if parts[i] = graph.Slice(scalars, graph.AxisRange(i, i+1)); name == cage.InputClip {
			parts[i] = graph.Reshape(factor, 1)
		}
	}
	return graph.Concatenate(parts, 0)
}

// sum64 adds up a float vector in float64.
func sum64(v *graph.Node) *graph.Node {
	return graph.ReduceAllSum(graph.ConvertDType(v, dtypes.Float64))
}

// allFinite tells whether no element of a float32 vector is infinite or NaN: in float64
// their sum cannot overflow.
func allFinite(v *graph.Node) *graph.Node { return graph.IsFinite(sum64(v)) }
