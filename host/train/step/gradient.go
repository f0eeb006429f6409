package step

import (
	"math"
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/compute/update"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

type gradientKind struct {
	full  bool // without quantization
	sum   bool // running sums of the gradients are inputs and outputs
	local bool // of one replica, not summed over all
	// sampled replaces the labels of the batch by labels drawn from the predictions.
	sampled bool
}

// gradientTensors lists the tensors with respect to which the loss is differentiated: parameters
// and, unless full is set, the trained parameters of the activation quantizers.
func (p *Plan) gradientTensors(full bool) []Tensor {
	if full {
		return p.differentiated()
	}
	return append(p.differentiated(), p.activationQuantizerParameters()...)
}

// summed lists the results of micro-batches that a step adds up, or takes the maximum of: gradients
// and the next states of activation quantizers. They have the names of the sums.
func (p *Plan) summed(full bool) []Tensor {
	list := p.gradientTensors(full)
	if !full {
		list = append(list, p.activationQuantizerStates()...)
	}
	for i := range list {
		list[i].Name = sumName(list[i].Name)
	}
	return list
}

func (p *Plan) forwardSpecs(full bool) []engine.Spec {
	specs := inputSpecs(p.params(), p.forwardName(full), false)
	if !full {
		specs = append(specs,
			inputSpecs(p.activationQuantizerParameters(), p.forwardName(false), false)...)
		specs = append(specs, inputSpecs(p.activationQuantizerStates(), asNamed, false)...)
		for _, t := range p.quantizedParams() {
			specs = append(specs, p.codes[t.Name]...)
		}
	}
	return specs
}

func (p *Plan) gradientSpecs(full bool) []engine.Spec {
	specs := append(p.forwardSpecs(full), p.teacherSpecs()...)
	if full {
		return specs
	}
	specs = append(specs, inputSpecs(p.unquantizedWeights(), p.pointName, false)...)
	return append(specs, p.batchNumberSpecs()...)
}

func (p *Plan) batchSpecs(full bool) []engine.Spec {
	specs := []engine.Spec{p.tokenSpec()}
	if full {
		return specs
	}
	return append(specs, keySpecs(activationKeysName, p.keys.activations)...)
}

// gradientStage maps the inputs of the forward pass to the mean losses and the gradients of a
// micro-batch. With kind.sum it adds the gradients to running sums.
func (p *Plan) gradientStage(kind gradientKind) update.Stage {
	name := "gradient"
	if kind.full {
		name = "full-precision gradient"
	}
	if kind.sampled {
		name += " with sampled labels"
	}
	specs := append(p.gradientSpecs(kind.full), p.batchSpecs(kind.full)...)
	if kind.sampled {
		specs = append(specs, keySpecs(labelKeysName, labelKeys)...)
	}
	if kind.sum {
		specs = append(specs, inputSpecs(p.summed(kind.full), asNamed, true)...)
	}
	return update.Stage{Name: name, Inputs: specs, Build: func(in update.Nodes) update.Nodes {
		return p.gradients(kind, in)
	}}
}

func (p *Plan) gradients(kind gradientKind, in update.Nodes) update.Nodes {
	if !kind.full {
		addKeys(in, activationKeysName, p.keys.activations)
	}
	p.widen(in)
	list := p.gradientTensors(kind.full)
	at := make([]*graph.Node, len(list)) // of sharded tensors: the local rows
	for i, t := range list {
		name := p.forwardName(kind.full)(t.Name)
		if at[i] = in[name]; engine.HasRows(at[i]) {
			at[i] = engine.Rows(in[name])
			_, quantized := p.Weights[t.Name]
			inBFloat16 := quantized && !kind.full && engine.InBFloat16(at[i].Graph())
			in[name] = engine.GatherOperand(at[i], inBFloat16)
		}
	}
	read, terms, next := p.differentiate(in, kind, at)
	for i, t := range list {
		if in[p.forwardName(kind.full)(t.Name)] != at[i] { // local rows, summed over replicas
			terms[i] = engine.Gather(terms[i])
		}
	}
	summed := p.summed(kind.full)
	for _, t := range summed[len(list):] {
		terms = append(terms, next[t.Name])
	}
	out := update.Nodes{lossName: read}
	for i, t := range summed {
		out[t.Name] = terms[i]
	}
	if !kind.local {
		p.reduceReplicas(kind.full, out)
	}
	for _, t := range summed {
		if kind.local && p.divided(t.Name, t.Dims) {
			out[t.Name] = t.acrossReplicas(p, out[t.Name]) // each replica keeps its rows of the sums
		}
		if kind.sum {
			out[t.Name] = engine.Elementwise(func(of []*graph.Node) *graph.Node {
				if t.Maximum {
					return graph.Max(of[0], of[1])
				}
				return graph.Add(of[0], of[1])
			}, in[t.Name], out[t.Name])
		}
	}
	return out
}

// differentiate builds the vector that the host reads of the loss of a micro-batch, the gradients
// with respect to at, and the next states of quantizers.
func (p *Plan) differentiate(in update.Nodes, kind gradientKind, at []*graph.Node) (
	read *graph.Node, gradients []*graph.Node, next update.Nodes) {
	of := p.gradientPass(in, kind)
	wrt := make([]*graph.Node, len(at)) // what the model reads
	for i, t := range p.gradientTensors(kind.full) {
		wrt[i] = in[p.forwardName(kind.full)(t.Name)]
	}
	out, gradients := p.Model.Compute(of.withNodes(in), wrt)
	for i, x := range wrt {
		switch {
		case gradients[i] == nil:
			gradients[i] = graph.ZerosLike(at[i])
		case x != at[i]: // it is gathered from the rows of all replicas
			gradients[i] = engine.Rows(engine.ScatterSum(gradients[i]))
		}
	}
	next = update.Nodes{}
	for site, q := range p.Activations {
		for i, t := range statesOf(q, site) {
			if x := out[network.InputOf(site, spec.KeptPrefix+q.State()[i].Name)]; x != nil {
				next[sumName(t.Name)] = x
			}
		}
	}
	if p.Distillation != nil && !kind.sampled {
		return flatten(out[network.Divergence], out[network.Entropy]), gradients, next
	}
	return flatten(out[network.Losses]), gradients, next
}

// flatten returns the vector of scalars.
func flatten(scalars ...*graph.Node) *graph.Node {
	return graph.Concatenate(lists.Map(scalars, func(x *graph.Node) *graph.Node {
		return graph.Reshape(x, 1)
	}), 0)
}

// accumulateGradients builds the graph of all micro-batches on one replica. It returns their
// losses, in the order in which the host reads them, and the tensors of [Plan.summed]. in has the
// inputs of the forward pass, and the tokens and keys of all micro-batches.
func (p *Plan) accumulateGradients(in update.Nodes) update.Nodes {
	kind := gradientKind{full: p.FullPrecision, local: true}
	reads, own := p.gradientSpecs(kind.full), p.batchSpecs(kind.full)
	if p.Accumulate == 1 {
		one := update.Nodes{}
		for _, spec := range own {
			one[spec.Name] = graph.Reshape(in[spec.Name], spec.Shape.Dimensions...)
		}
		for _, spec := range reads {
			one[spec.Name] = in[spec.Name]
		}
		return p.gradients(kind, one)
	}
	g := in.Graph()
	kind.sum = true
	list := p.summed(kind.full)
	state := []*graph.Node{graph.BroadcastToDims(Tensor{}.identity(g), p.Accumulate, p.lossCount())}
	for _, t := range list {
		identity := graph.BroadcastToDims(t.identity(g), t.Dims...)
		state = append(state, part(identity, p.divided(t.Name, t.Dims)))
	}
	var fixed []*graph.Node
	for _, spec := range slices.Concat(own, reads) {
		fixed = append(fixed, part(in[spec.Name], engine.HasRows(in[spec.Name])))
	}
	body := func(i *graph.Node, fixed, state []*graph.Node) []*graph.Node {
		one := update.Nodes{}
		for j, spec := range own {
			row := graph.Gather(fixed[j], graph.Reshape(i, 1))
			one[spec.Name] = graph.Reshape(row, spec.Shape.Dimensions...)
		}
		for j, spec := range reads {
			one[spec.Name] = whole(fixed[len(own)+j], engine.HasRows(in[spec.Name]))
		}
		for j, t := range list {
			one[t.Name] = whole(state[1+j], p.divided(t.Name, t.Dims))
		}
		out := p.gradients(kind, one)
		row := graph.InsertAxes(out[lossName], 0)
		losses := graph.DynamicUpdateSlice(state[0], row, []*graph.Node{i, graph.ZerosLike(i)})
		next := []*graph.Node{losses}
		for _, t := range list {
			next = append(next, part(out[t.Name], p.divided(t.Name, t.Dims)))
		}
		return next
	}
	state = engine.Loop(g, p.Accumulate, fixed, state, body)
	sums := update.Nodes{lossName: graph.Reshape(state[0], -1)}
	for j, t := range list {
		sums[t.Name] = whole(state[1+j], p.divided(t.Name, t.Dims))
	}
	return sums
}

func part(x *graph.Node, divided bool) *graph.Node {
	if divided {
		return engine.Rows(x)
	}
	return x
}

func whole(x *graph.Node, divided bool) *graph.Node {
	if divided {
		return engine.Gather(x)
	}
	return x
}

// finishStage maps the summed gradients to the mean gradients of all trained tensors, through the
// backward passes of the weight quantizers, and to the vector of their squared norms. It also maps
// the summed states of activation quantizers to their means.
func (p *Plan) finishStage(quantize *update.Executable) update.Stage {
	specs := inputSpecs(p.summed(p.FullPrecision), asNamed, true)
	if quantize != nil && !p.FullPrecision { // otherwise already gradients of the parameters
		specs = append(specs, quantize.Inputs...)
		isKey := func(s engine.Spec) bool { // the keys are among its inputs, too
			return slices.ContainsFunc(p.keys.weights, func(k key) bool { return k.node == s.Name })
		}
		values := slices.DeleteFunc(quantize.OutputSpecs(), func(s engine.Spec) bool {
			return isKey(s) || strings.HasPrefix(s.Name, nextName(""))
		})
		for i := range values {
			kind, _, _ := strings.Cut(values[i].Name, "/")
			values[i].Donated = kind != string(program.KindValue) && kind != string(program.KindMerged)
		}
		specs = append(specs, values...)
	}
	return update.Stage{Name: "finish", Inputs: specs, Build: p.meanGradients}
}

func (p *Plan) meanGradients(in update.Nodes) update.Nodes {
	out := update.Nodes{}
	if !p.FullPrecision {
		addKeys(in, weightKeysName, p.keys.weights)
	}
	var last *graph.Node
	for _, t := range p.gradientTensors(p.FullPrecision) {
		mean := late(in[sumName(t.Name)], last)
		if n := p.Accumulate * engine.Replicas(mean.Graph()); n > 1 {
			mean = engine.Elementwise(func(of []*graph.Node) *graph.Node {
				return graph.MulScalar(of[0], 1/float64(n))
			}, mean)
		}
		if _, quantized := p.Weights[t.Name]; quantized && !p.FullPrecision {
			q := p.Weights[t.Name] // its backward pass may be nonlinear
			at := lower.Point{X: p.point(t, in, last), Given: quantizerInputs(q, t.Name, in),
				Value: in[program.KindValue.Of(t.Name)]}
			dx, dTrained := q.Backward(at, numberedNodes(in, residualName, t.Name), mean)
			if a := p.adapter(t.Name); a != nil {
				p.addFactorGradients(a, dx, in, out)
				last = out[program.KindGradient.Of(a.B().Name)]
			} else if len(p.Adapters) == 0 {
				out[program.KindGradient.Of(t.Name)] = dx
			}
			for i, trained := range parametersOf(q, t.Name) {
				addGradient(out, trained.Name, dTrained[i])
			}
		} else if a := p.adapter(t.Name); a != nil {
			p.addFactorGradients(a, mean, in, out)
		} else {
			addGradient(out, t.Name, mean)
		}
	}
	var norms []*graph.Node
	for _, t := range p.tensors() {
		var norm2 *graph.Node
		rows := func(x *graph.Node) *graph.Node { return graph.ReduceSum(graph.Mul(x, x), -1) }
		switch g := out[program.KindGradient.Of(t.Name)]; {
		case g == nil: // frozen
			norm2 = graph.ScalarZero(in.Graph(), dtypes.Float32)
		case g.Shape().IsScalar():
			norm2 = graph.Mul(g, g)
		case engine.HasRows(g): // gathers the sums of rows, which are then added in the same order
			norm2 = graph.ReduceAllSum(engine.Gather(rows(engine.Rows(g))))
		default:
			norm2 = graph.ReduceAllSum(rows(g))
		}
		norms = append(norms, graph.Reshape(norm2, 1))
	}
	out[normsName] = graph.Concatenate(norms, 0)
	if !p.FullPrecision {
		for _, t := range p.activationQuantizerStates() {
			next := in[sumName(t.Name)]
			if !t.Maximum {
				next = graph.DivScalar(next, float64(p.Accumulate*engine.Replicas(next.Graph())))
			}
			out[nextName(t.Name)] = next
		}
	}
	return out
}

// With several replicas, a device gives each an equal part of the sequences of a micro-batch, so
// that the mean over the replicas is the mean over the batch. Parameters and states are the same on
// all replicas, and stay equal because the gradients are summed over the replicas before the
// update.

// reduceReplicas replaces the losses of one replica by their mean over all replicas, and reduces
// the sums and maxima of a step across replicas, unless they are sharded sums already.
func (p *Plan) reduceReplicas(full bool, out update.Nodes) {
	n := engine.Replicas(out[lossName].Graph())
	if n == 1 {
		return
	}
	out[lossName] = graph.MulScalar(engine.SumAcross(out[lossName])[0], 1/float64(n))
	for _, t := range p.summed(full) {
		out[t.Name] = t.acrossReplicas(p, out[t.Name])
	}
}

func (t Tensor) acrossReplicas(p *Plan, x *graph.Node) *graph.Node {
	switch {
	case engine.HasRows(x):
		return x
	case t.Maximum:
		return engine.MaxAcross(x)[0]
	case p.divided(strings.Replace(t.Name, "sum/", "gradient/", 1), t.Dims):
		return engine.ScatterSum(x)
	}
	return engine.SumAcross(x)[0]
}

// identity returns the identity element: −∞ for a maximum, −0 for a sum (−0 + 0 would be 0).
func (t Tensor) identity(g *graph.Graph) *graph.Node {
	if t.Maximum {
		return graph.Const(g, float32(math.Inf(-1)))
	}
	return graph.Const(g, float32(math.Copysign(0, -1)))
}
