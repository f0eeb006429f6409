package step

import (
	"cmp"
	"maps"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/compute/update"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// pass is a program of the model. tensors has the names of those tensors of a step that have others
// than the inputs that they are.
type pass struct {
	model.Pass
	tensors map[string]string
}

// tensor returns the name of the tensor that is an input.
func (of *pass) tensor(input string) string { return cmp.Or(of.tensors[input], input) }

// batchPass returns the program that reads batches as in training. It may be changed.
func (p *Plan) batchPass(full bool) (of pass) {
	of.Batch, of.Context, of.Documents = p.Batch, p.Context, len(p.batchDims()) > 2
	of.Calls, of.Next = map[string]*program.Call{}, map[string]*program.Call{}
	of.Coded = map[string]bool{}
	of.tensors = map[string]string{}
	for _, param := range p.Model.Params() {
		of.tensors[param.Name] = p.forwardName(full)(param.Name)
	}
	return of
}

// gradientPass returns the program of a micro-batch.
func (p *Plan) gradientPass(in update.Nodes, kind gradientKind) (of pass) {
	of = p.batchPass(kind.full)
	if !kind.full {
		p.addQuantizers(&of, p.Activations, true, engine.DeviceOf(in.Graph()), hasNode(in))
		p.addBackward(&of)
	}
	if kind.sampled {
		of.Head.Sampled = true
		of.tensors[network.Key] = labelKeysName
	} else {
		p.addTeacher(&of)
	}
	return of
}

// addTeacher adds the teacher, if there is one.
func (p *Plan) addTeacher(of *pass) {
	if d := p.Distillation; d != nil {
		of.Head.Teacher = network.Teacher{Distillation: d.Distillation, Settings: d.Teacher.Network()}
	}
}

// addQuantizers adds quantizers of activations, with their backward passes if a gradient is wanted.
// has reports whether there is a tensor.
func (p *Plan) addQuantizers(of *pass, quantizers map[string]lower.Quantizer, gradient bool,
	dev *engine.Device, has func(tensor string) bool) {
	for _, s := range p.Model.ActivationSites(p.Batch, p.Context) {
		q := quantizers[s.Name]
		if q == nil {
			continue
		}
		c := q.Call(gradient)
		for _, weight := range s.Feeds {
			if !has(codeName(weight, 0)) {
				continue
			}
			if coded, ok := lower.Coded(q.Call(gradient), dev); ok {
				c, of.Coded[weight] = coded, true
				of.tensors[network.InputOf(weight, network.Integers)] = codeName(weight, 0)
				of.tensors[network.InputOf(weight, network.Scale)] = codeName(weight, 1)
			}
		}
		of.Calls[s.Name] = c
		of.addOperands(s.Name, c, q.Trained())
		if next := q.NextCall(); next != nil {
			of.Next[s.Name] = next
			of.addOperands(s.Name, next, q.Trained())
		}
	}
}

func hasNode(in update.Nodes) func(tensor string) bool {
	return func(tensor string) bool { return in[tensor] != nil }
}

// addBackward adds the quantizers of the backward pass.
func (p *Plan) addBackward(of *pass) {
	of.Unquantized = p.Unquantized
	for site, q := range p.Backward {
		name := site.String()
		of.Calls[name] = q.Call()
		of.addOperands(name, q.Call(), nil)
		if site.Role == sdk.RoleWeight && p.Unquantized {
			of.tensors[network.InputOf(site.Name, network.Before)] = p.pointName(site.Name)
		}
	}
}

// addOperands adds the tensors of a quantizer's operands besides x. trained has its trained
// parameters.
func (of *pass) addOperands(site string, c *program.Call, trained []spec.Tensor) {
	for _, in := range c.Meaning.Inputs[1:] {
		tensor := in.Name
		switch in.Name {
		case spec.InputNoise:
			tensor = program.KindNoise.Of(site)
		case spec.InputSharedNoise:
			tensor = program.KindSharedNoise.Of(site)
		case spec.InputStep, spec.InputSteps: // see addNumbers
		default:
			tensor = QuantizerInput(site, trained, in.Name)
		}
		of.tensors[network.InputOf(site, in.Name)] = tensor
	}
}

// withNodes returns the program with the nodes of its inputs.
func (of *pass) withNodes(in update.Nodes) model.Pass {
	addNumbers(in)
	of.Inputs = maps.Clone(in)
	for input, tensor := range of.tensors {
		of.Inputs[input] = in[tensor]
	}
	if key := of.Inputs[network.Key]; key != nil {
		of.Inputs[network.Key] = graph.Reshape(key, 2)
	}
	return of.Pass
}
