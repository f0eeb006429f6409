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
	of := p.batchProgram(false)
	p.addTeacher(&of)
	for _, list := range []map[string]lower.Quantizer{p.Weights, p.Activations} {
		for site, q := range list {
			of.Calls[site] = q.Call(true)
		}
	}
	return network.New(m.Network(), of.Shape, of.Quantizers)
}
