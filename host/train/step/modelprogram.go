package step

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/cage-qat/cage/host/compute/calls"
	"github.com/cage-qat/cage/host/compute/fakequant"
	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/transform"
	"github.com/cage-qat/cage/sdk/spec"
)

// modelProgram describes a program of the model. tensors maps inputs of the program to the tensors
// of the step where their names differ.
type modelProgram struct {
	model.ProgramOptions
	tensors map[string]string
	// short has the sharded tensors that are gathered in the device's precision.
	short map[string]bool
}

// tensor returns the name of the tensor that is an input.
func (of *modelProgram) tensor(input string) string { return cmp.Or(of.tensors[input], input) }

// batchProgram returns the program that reads batches as in training. It may be changed.
func (p *Plan) batchProgram(full bool) (of modelProgram) {
	of.Batch, of.Context, of.Documents = p.Batch, p.Context, len(p.batchDims()) > 2
	of.Calls, of.Next = map[string]*program.Call{}, map[string]*program.Call{}
	of.Coded = map[string]bool{}
	of.tensors, of.short = map[string]string{}, map[string]bool{}
	for _, param := range p.Model.Params() {
		of.tensors[param.Name] = p.forwardName(full)(param.Name)
	}
	return of
}

// gradientProgram returns the program of a micro-batch.
func (p *Plan) gradientProgram(kind gradientKind) (of modelProgram) {
	of = p.batchProgram(kind.full)
	if !kind.full {
		p.addQuantizers(&of, p.Activations, true)
		p.addBackward(&of)
	}
	if kind.sampled {
		of.Head.Sampled = true
		of.tensors[network.Key] = labelKeys[0].node
	} else {
		p.addTeacher(&of)
	}
	return of
}

// addTeacher adds the teacher, if there is one.
func (p *Plan) addTeacher(of *modelProgram) {
	if d := p.Distillation; d != nil {
		of.Head.Teacher = network.Teacher{Distillation: d.Distillation, Settings: d.Teacher.Network()}
	}
}

// addQuantizers adds quantizers of activations, with their backward passes if a gradient is wanted.
func (p *Plan) addQuantizers(of *modelProgram, quantizers map[string]*fakequant.Quantizer,
	gradient bool) {
	for _, s := range p.Model.ActivationSites(p.Batch, p.Context) {
		q := quantizers[s.Name]
		if q == nil {
			continue
		}
		c := q.Call(gradient)
		for _, weight := range s.Feeds {
			if p.codes[weight] == nil {
				continue
			}
			if coded, ok := fakequant.Coded(q.Call(gradient)); ok {
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

// addBackward adds the quantizers of the backward pass.
func (p *Plan) addBackward(of *modelProgram) {
	of.Unquantized = p.Unquantized
	for site, q := range p.Backward {
		name := site.String()
		of.Calls[name] = q.Call()
		of.addOperands(name, q.Call(), nil)
		if site.Role == sdk.RoleWeight && p.Unquantized {
			of.tensors[network.InputOf(site.Name, network.Before)] = p.quantizerInputName(site.Name)
		}
	}
}

// addOperands adds the tensors of a quantizer's operands besides x. trained has its trained
// parameters.
func (of *modelProgram) addOperands(site string, c *program.Call, trained []spec.Tensor) {
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

// inlineModel adds the program of the model to b, given the tensors of a step, and returns its
// outputs. The program reads tensors whole: it computes the part of a batch that a replica has.
// With wrt, these are also the gradients with respect to tensors, named as these with
// [program.KindGradient]; there is none for a tensor that the program does not read.
func (p *Plan) inlineModel(b *program.Builder, of *modelProgram, in stage.Values,
	wrt ...string) stage.Values {
	addNumbers(in)
	var names []string // of the inputs that the tensors are
	inputs := map[string][]string{}
	for _, tensor := range wrt {
		if of.tensors[tensor] == "" {
			inputs[tensor] = append(inputs[tensor], tensor)
		}
		for _, input := range slices.Sorted(maps.Keys(of.tensors)) {
			if of.tensors[input] == tensor {
				inputs[tensor] = append(inputs[tensor], input)
			}
		}
		names = append(names, inputs[tensor]...)
	}
	written, err := p.Model.Program(of.ProgramOptions, names...)
	if err != nil {
		b.Fail(err)
		return nil
	}
	var args []program.Value
	gathered := map[string]program.Value{}
	for _, input := range written.Inputs {
		tensor := of.tensor(input.Name)
		x, ok := in[tensor]
		if !ok {
			b.Fail(fmt.Errorf("there is no tensor for the input %q of the model", input.Name))
			return nil
		}
		if known, ok := gathered[tensor]; ok {
			x = known
		} else if p.divided(tensor, input.Type.Shape) {
			x = calls.Gathered(x, of.short[tensor])
			gathered[tensor] = x
		}
		args = append(args, x)
	}
	out := stage.Values(transform.Inline(b, written, args...))
	for _, tensor := range wrt {
		for _, input := range inputs[tensor] {
			dx, ok := out[autodiff.Prefix+input]
			if !ok {
				continue
			}
			if before, ok := out[program.KindGradient.Of(tensor)]; ok {
				dx = before.Add(dx)
			}
			out[program.KindGradient.Of(tensor)] = dx
		}
	}
	return out
}

// Program returns the program of the losses of a language model in training, with the quantizers
// of weights and activations as calls in their places. It has no adapters, and quantizes nothing in
// the backward pass.
func (p *Plan) Program() (*program.Program, error) {
	m, ok := p.Model.(model.Language)
	if !ok {
		return nil, fmt.Errorf("step: only language models are programs")
	}
	of := p.batchProgram(false)
	p.addTeacher(&of)
	for _, list := range []map[string]*fakequant.Quantizer{p.Weights, p.Activations} {
		for site, q := range list {
			of.Calls[site] = q.Call(true)
		}
	}
	return network.New(m.Network(), of.Shape, of.Quantizers)
}
