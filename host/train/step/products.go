package step

import (
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
)

// multiplyCodes finds the weights whose products are computed from codes: the device multiplies codes, and both the
// quantized weight and the quantized activation that it is multiplied with have them.
func (p *Plan) multiplyCodes(d *engine.Device) {
	p.codes = map[string][]engine.Spec{}
	for _, s := range p.Model.ActivationSites(p.Batch, p.Context) {
		if codeSpecs(d, s.Name, p.Activations[s.Name]) == nil {
			continue
		}
		for _, weight := range s.Feeds {
			p.codes[weight] = codeSpecs(d, weight, p.Weights[weight])
		}
	}
}

// codeSpecs are the codes of a tensor's values, nil where they have none or the tensor is not quantized.
func codeSpecs(d *engine.Device, tensor string, q lower.Quantizer) []engine.Spec {
	if q == nil {
		return nil
	}
	var specs []engine.Spec
	for i, shape := range q.CodeShapes(d) {
		specs = append(specs, engine.Spec{Name: code(tensor, i), Shape: shape})
	}
	return specs
}

// weightCodes are the codes of weights that a forward pass reads.
func (p *Plan) weightCodes() []engine.Spec {
	var specs []engine.Spec
	for _, t := range p.quantizedParams() {
		specs = append(specs, p.codes[t.Name]...)
	}
	return specs
}
