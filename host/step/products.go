package step

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/lower"
)

// multiplyCodes lets products be those of integers where the values of the weight and of the activation that it is
// multiplied with have codes.
func (p *Plan) multiplyCodes() {
	p.coded = map[string]bool{}
	for _, s := range p.Model.ActivationSites(p.Batch, p.Context) {
		if !factors(p.Activations[s.Name]) {
			continue
		}
		for _, weight := range s.Feeds {
			p.coded[weight] = factors(p.Weights[weight])
		}
	}
}

func factors(q lower.Quantizer) bool {
	f, ok := q.(lower.Factoring)
	return ok && f.Factors()
}

// codeSpecs are the codes of weights that a forward pass reads.
func (p *Plan) codeSpecs() []engine.Spec {
	var specs []engine.Spec
	for _, t := range p.quantized() {
		if p.coded[t.Name] {
			specs = append(specs, engine.Spec{Name: integers(t.Name), Shape: shapes.Make(dtypes.Int8, t.Dims...)},
				engine.Spec{Name: scales(t.Name), Shape: floats(t.Dims[0], 1)})
		}
	}
	return specs
}
