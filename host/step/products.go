package step

import (
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/lower"
)

// multipliesCodes tells whether the products of a weight are those of integers: the device is asked for it, and the
// values of the weight and of the activation that it is multiplied with have codes.
func (p *Plan) multipliesCodes(weight string) bool {
	if p.products != engine.IntegerProducts || !factors(p.Weights[weight]) {
		return false
	}
	for _, s := range p.Model.ActivationSites(p.Batch, p.Context) {
		if slices.Contains(s.Feeds, weight) {
			return factors(p.Activations[s.Name])
		}
	}
	return false
}

func factors(q lower.Quantizer) bool {
	f, ok := q.(lower.Factoring)
	return ok && f.Factors()
}

// codeSpecs are the codes of weights that a forward pass reads.
func (p *Plan) codeSpecs() []engine.Spec {
	var specs []engine.Spec
	for _, t := range p.quantized() {
		if p.multipliesCodes(t.Name) {
			specs = append(specs, engine.Spec{Name: integers(t.Name), Shape: shapes.Make(dtypes.Int8, t.Dims...)},
				engine.Spec{Name: scales(t.Name), Shape: floats(t.Dims[0], 1)})
		}
	}
	return specs
}
