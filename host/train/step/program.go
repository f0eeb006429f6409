package step

import (
	"fmt"

	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/sdk/program"
)

// Program returns the program of the losses of a language model in training, with the quantizers
// of weights and activations as calls in their places. It has no adapters, and quantizes nothing in
// the backward pass.
func (p *Plan) Program() (*program.Program, error) {
	m, ok := p.Model.(model.Language)
	if !ok {
		return nil, fmt.Errorf("step: only language models are programs")
	}
	calls := map[string]*program.Call{}
	for _, list := range []map[string]lower.Quantizer{p.Weights, p.Activations} {
		for site, q := range list {
			calls[site] = q.Call(true)
		}
	}
	shape := network.Shape{Batch: p.Batch, Context: p.Context,
		Documents: len(m.BatchDims(p.Batch, p.Context)) > 2}
	if d := p.Distillation; d != nil {
		shape.Head.Teacher = network.Teacher{Distillation: d.Distillation, Settings: d.Teacher.Network()}
	}
	return network.New(m.Network(), shape, network.Quantizers{Calls: calls})
}
