package step

import (
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/lower"
	"github.com/cage-qat/cage/host/model"
)

// activations makes the model's hook from the quantizers by site.
func activations(bySite map[string]lower.Quantizer) model.ActivationQuantizer {
	if len(bySite) == 0 {
		return nil
	}
	return func(site model.ActivationSite, x *graph.Node) *graph.Node {
		if q, ok := bySite[site.Name]; ok {
			return lower.Quantize(x, q)
		}
		return x
	}
}
