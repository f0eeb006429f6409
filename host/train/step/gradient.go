package step

import (
	"maps"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/compute/calls"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/host/model/network"
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
	specs = append(specs, inputSpecs(p.unquantizedWeights(), p.quantizerInputName, false)...)
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
func (p *Plan) gradientStage(kind gradientKind) stage.Stage {
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
	of := p.gradientProgram(kind)
	return stage.Stage{Name: name, Inputs: specs, Calls: p.Model.Calls(of.Shape),
		Write: func(b *program.Builder, in stage.Values) stage.Values {
			return p.gradients(kind, b, &of, in)
		}}
}

func (p *Plan) gradients(kind gradientKind, b *program.Builder, of *modelProgram,
	in stage.Values) stage.Values {
	if !kind.full {
		addKeys(in, activationKeysName, p.keys.activations)
	}
	if kind.sampled {
		addKeys(in, labelKeysName, labelKeys)
	}
	p.widen(in)
	list := p.gradientTensors(kind.full)
	gathered := make([]bool, len(list)) // each replica has its rows of the tensor
	var wrt []string
	for i, t := range list {
		name := p.forwardName(kind.full)(t.Name)
		wrt = append(wrt, name)
		_, quantized := p.Weights[t.Name]
		gathered[i], of.short[name] = p.divided(name, t.Dims), quantized && !kind.full
	}
	computed := p.inlineModel(b, of, in, wrt...)
	if b.Err() != nil {
		return nil
	}
	losses := []program.Value{computed[network.Losses]}
	if p.Distillation != nil && !kind.sampled {
		losses = []program.Value{computed[network.Divergence], computed[network.Entropy]}
	}
	out := stage.Values{lossName: stage.Vector(losses...)}
	summed := p.summed(kind.full)
	for i, t := range list {
		x, ok := computed[program.KindGradient.Of(wrt[i])]
		if !ok {
			x = b.Zeros(t.Dims...)
		}
		if gathered[i] {
			x = calls.ScatterSum(x)
		}
		out[summed[i].Name] = x
	}
	for site, q := range p.Activations {
		for i, t := range statesOf(q, site) {
			name := network.InputOf(site, spec.KeptPrefix+q.State()[i].Name)
			if x, ok := computed[name]; ok && !kind.full {
				out[sumName(t.Name)] = x
			}
		}
	}
	reduced := func(i int) bool { return i < len(list) && gathered[i] }
	if !kind.local {
		p.reduceReplicas(kind.full, out, reduced)
	}
	for i, t := range summed {
		if kind.local && !reduced(i) && p.divided(t.Name, t.Dims) {
			out[t.Name] = t.acrossReplicas(p, out[t.Name]) // each replica keeps its rows of the sums
		}
		switch before := in[t.Name]; {
		case !kind.sum:
		case t.Maximum:
			out[t.Name] = before.Max(out[t.Name])
		default:
			out[t.Name] = before.Add(out[t.Name])
		}
	}
	return out
}

// finishStage maps the summed gradients to the mean gradients of all trained tensors, through the
// backward passes of the weight quantizers, and to the vector of their squared norms. It also maps
// the summed states of activation quantizers to their means. quantized has the outputs of the
// quantize stage.
func (p *Plan) finishStage(quantized []engine.Spec) stage.Stage {
	specs := inputSpecs(p.summed(p.FullPrecision), asNamed, true)
	if len(quantized) > 0 && !p.FullPrecision { // otherwise already gradients of the parameters
		specs = append(specs, p.quantizeStage().Inputs...)
		isKey := func(s engine.Spec) bool { // the keys are among its inputs, too
			return slices.ContainsFunc(p.keys.weights, func(k key) bool { return k.node == s.Name })
		}
		values := slices.DeleteFunc(slices.Clone(quantized), func(s engine.Spec) bool {
			return isKey(s) || strings.HasPrefix(s.Name, nextName(""))
		})
		for i := range values {
			kind, _, _ := strings.Cut(values[i].Name, "/")
			values[i].Donated = kind != string(program.KindValue) && kind != string(program.KindMerged)
		}
		specs = append(specs, values...)
	}
	replaces := map[string]string{}
	for _, t := range p.gradientTensors(p.FullPrecision) {
		replaces[program.KindGradient.Of(t.Name)] = sumName(t.Name)
	}
	for _, t := range p.activationQuantizerStates() {
		replaces[nextName(t.Name)] = sumName(t.Name)
	}
	return stage.Stage{Name: "finish", Inputs: specs, Write: p.meanGradients, Replaces: replaces}
}

func (p *Plan) meanGradients(b *program.Builder, in stage.Values) stage.Values {
	out := stage.Values{}
	if !p.FullPrecision {
		addKeys(in, weightKeysName, p.keys.weights)
	}
	n := float64(p.Accumulate * p.replicas)
	for _, t := range p.gradientTensors(p.FullPrecision) {
		mean := in[sumName(t.Name)]
		if n > 1 {
			mean = mean.Scale(1 / n)
		}
		if q, quantized := p.Weights[t.Name]; quantized && !p.FullPrecision {
			// its backward pass may be nonlinear
			dx, dTrained := q.Backward(p.quantizerInput(t, in), in[program.KindValue.Of(t.Name)],
				given(q, t.Name, in), numbered(in, residualName, t.Name), mean)
			if a := p.adapter(t.Name); a != nil {
				p.addFactorGradients(a, dx, in, out)
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
	var norms []program.Value
	for _, t := range p.tensors() {
		g, ok := out[program.KindGradient.Of(t.Name)]
		switch {
		case !ok: // frozen
			g = b.Const(0)
		case g.Type().IsScalar():
			g = g.Square()
		default: // the sums of rows, which are then added in the same order on any number of replicas
			rows := g.Square().ReduceSum(g.Type().Rank() - 1)
			g = rows.Reshape(1, int(rows.Type().Size())).SumAll()
		}
		norms = append(norms, g)
	}
	out[normsName] = stage.Vector(norms...)
	if !p.FullPrecision {
		for _, t := range p.activationQuantizerStates() {
			next := in[sumName(t.Name)]
			if !t.Maximum {
				next = next.Div(b.Const(n))
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
// the sums and maxima of a step across replicas, unless they are reduced already.
func (p *Plan) reduceReplicas(full bool, out stage.Values, reduced func(i int) bool) {
	if p.replicas == 1 {
		return
	}
	out[lossName] = calls.MeanOverReplicas(out[lossName], p.replicas)
	for i, t := range p.summed(full) {
		if !reduced(i) {
			out[t.Name] = t.acrossReplicas(p, out[t.Name])
		}
	}
}

// reduceStage is [Plan.reduceReplicas] for the sums of a step that is one executable.
func (p *Plan) reduceStage() stage.Stage {
	full := p.FullPrecision
	losses := engine.Spec{Name: lossName, Shape: floatShape(p.Accumulate * p.lossCount())}
	return stage.Stage{Name: "reduce",
		Inputs: append(inputSpecs(p.summed(full), asNamed, false), losses),
		Write: func(_ *program.Builder, in stage.Values) stage.Values {
			out := maps.Clone(in)
			list, tensors := p.summed(full), p.gradientTensors(full)
			p.reduceReplicas(full, out, func(i int) bool {
				return p.divided(list[i].Name, list[i].Dims) || i < len(tensors) &&
					p.divided(p.forwardName(full)(tensors[i].Name), tensors[i].Dims)
			})
			return out
		}}
}

func (t Tensor) acrossReplicas(p *Plan, x program.Value) program.Value {
	switch {
	case t.Maximum:
		return calls.MaximumOverReplicas(x)
	case p.divided(strings.Replace(t.Name, string(kindSum), string(program.KindGradient), 1), t.Dims):
		return calls.ScatterSum(x)
	}
	return calls.SumOverReplicas(x)
}

// addGradient adds gradient to that of a tensor in out: several sites may share the tensor.
func addGradient(out stage.Values, tensor string, gradient program.Value) {
	name := program.KindGradient.Of(tensor)
	if before, ok := out[name]; ok {
		gradient = before.Add(gradient)
	}
	out[name] = gradient
}
