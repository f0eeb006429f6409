package step

import (
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/matmul"
	"github.com/cage-qat/cage/host/compute/update"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// differentiatePlanned is [Plan.differentiate] by package plan, if that can.
func (p *Plan) differentiatePlanned(m model.Language, params []*graph.Node, in update.Nodes,
	kind gradientKind, quantized bool, at []*graph.Node) (out map[string]*graph.Node,
	gradients []*graph.Node, ok bool) {
	of := model.Planned{Inputs: map[string]*graph.Node{}}
	of.Calls = map[string]*program.Call{}
	if quantized {
		if of, ok = p.planned(in); !ok {
			return nil, nil, false
		}
	}
	if !kind.full {
		p.plannedBackward(in, &of)
	}
	switch d := p.Distillation; {
	case kind.sampled:
		of.Head.Sampled = true
		of.Inputs[network.Key] = graph.Reshape(in[labelKeysName], 2)
	case d != nil:
		of.Head.Teacher = network.Teacher{Distillation: d.Distillation, Settings: d.Teacher.Network()}
		for _, t := range p.teacherParams() {
			of.Inputs[network.TeacherParam(t.Name)] = in[network.TeacherParam(t.Name)]
		}
	}
	return m.Planned(params, in[tokensName], at, of)
}

// planned returns the quantizers of activations for a plan. ok is false if one cannot be a call.
func (p *Plan) planned(in update.Nodes) (of model.Planned, ok bool) {
	of.Calls, of.Next = map[string]*program.Call{}, map[string]*program.Call{}
	of.Inputs, of.Coded = map[string]*graph.Node{}, map[string]bool{}
	for _, s := range p.Model.ActivationSites(p.Batch, p.Context) {
		q := p.Activations[s.Name]
		if q == nil {
			continue
		}
		if of.Calls[s.Name] = q.Call(); of.Calls[s.Name] == nil {
			return of, false
		}
		for _, weight := range s.Feeds {
			if parts := numberedNodes(in, codeName, weight); parts != nil && s.Width <= matmul.MaxCodes {
				of.Calls[s.Name] = q.CodedCall(engine.DeviceOf(in.Graph()))
				of.Coded[weight] = true
				of.Inputs[network.InputOf(weight, network.Integers)] = parts[0]
				of.Inputs[network.InputOf(weight, network.Scale)] = parts[1]
			}
		}
		if next := q.NextCall(); next != nil {
			of.Next[s.Name] = next
		}
		for name, node := range q.Operands(quantizerInputs(q, s.Name, in)) {
			of.Inputs[network.InputOf(s.Name, name)] = node
		}
	}
	return of, true
}

// plannedBackward adds the quantizers of the backward pass for a plan.
func (p *Plan) plannedBackward(in update.Nodes, of *model.Planned) {
	of.Unquantized = p.Unquantized
	for site, q := range p.Backward {
		name := site.String()
		of.Calls[name] = q.Call()
		for operand, node := range q.Operands(stepInputs(name, in)) {
			of.Inputs[network.InputOf(name, operand)] = node
		}
		if site.Role == sdk.RoleWeight && p.Unquantized {
			of.Inputs[network.InputOf(site.Name, network.Before)] = in[p.pointName(site.Name)]
		}
	}
}
