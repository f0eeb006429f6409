package step

import (
	"slices"

	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/sdk"
)

// OperandSite identifies an operand of a product in the backward pass of a linear layer.
type OperandSite = network.OperandSite

// BackwardSites lists the operands of the backward products in blocks, with their shapes, for all
// layers whose activations or weights may be quantized. batch counts sequences per micro-batch.
func BackwardSites(m model.Model, batch, context int) (sites []OperandSite, shapes [][]int) {
	outputs := map[string]int{}
	for _, p := range m.Params() {
		if p.Quantized && len(p.Dims) == 2 {
			outputs[p.Name] = p.Dims[0]
		}
	}
	add := func(product sdk.Product, role sdk.Role, name string, shape ...int) {
		sites = append(sites, OperandSite{Product: product, Role: role, Name: name})
		shapes = append(shapes, shape)
	}
	for _, s := range inputSites(m, batch, context) {
		for _, w := range s.Feeds {
			add(sdk.ProductInputGradient, sdk.RoleGradient, w, s.Tokens, outputs[w])
			add(sdk.ProductInputGradient, sdk.RoleWeight, w, s.Width, outputs[w])
			add(sdk.ProductWeightGradient, sdk.RoleGradient, w, outputs[w], s.Tokens)
		}
		add(sdk.ProductWeightGradient, sdk.RoleActivation, s.Name, s.Width, s.Tokens)
	}
	return sites, shapes
}

func inputSites(m model.Model, batch, context int) []model.ActivationSite {
	outside := func(s model.ActivationSite) bool { return !s.OfBlock() }
	return slices.DeleteFunc(m.ActivationSites(batch, context), outside)
}

// unquantizedWeights lists the weights W for which the backward pass quantizes W instead of Q(W).
func (p *Plan) unquantizedWeights() []Tensor {
	if !p.Unquantized {
		return nil
	}
	return slices.DeleteFunc(p.quantizedParams(), func(t Tensor) bool {
		_, ok := p.Backward[OperandSite{Product: sdk.ProductInputGradient, Role: sdk.RoleWeight,
			Name: t.Name}]
		return !ok
	})
}
