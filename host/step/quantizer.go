package step

import (
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/lower"
	"github.com/cage-qat/cage/host/model"
)

// activations makes the model's hook from the quantizers by site. trained returns
// the trained parameters of a site's quantizer.
func activations(bySite map[string]lower.Quantizer, trained func(site string) []*graph.Node) model.ActivationQuantizer {
	if len(bySite) == 0 {
		return nil
	}
	return func(site model.ActivationSite, x *graph.Node) *graph.Node {
		if q, ok := bySite[site.Name]; ok {
			return lower.Quantize(x, trained(site.Name), q)
		}
		return x
	}
}

// hook is the model's hook with the nodes of the trained parameters of activations,
// in the order of the plan's list.
func (p *Plan) hook(nodes []*graph.Node) model.ActivationQuantizer {
	return activations(p.Activations, func(site string) []*graph.Node {
		var own []*graph.Node
		for i, t := range p.trainedActivations() {
			if t.site == site {
				own = append(own, nodes[i])
			}
		}
		return own
	})
}

// calibrating is a hook that initialises the trained parameters of each site from
// the first activations that arrive there, quantized upstream already, and passes
// them to found in the order of the plan's list. Of several replicas it takes the mean.
func (p *Plan) calibrating(found *[]*graph.Node) model.ActivationQuantizer {
	return func(site model.ActivationSite, x *graph.Node) *graph.Node {
		q, ok := p.Activations[site.Name]
		if !ok {
			return x
		}
		trained := meanAcross(q.Init(x))
		*found = append(*found, trained...)
		value, _ := q.Forward(x, trained)
		return value
	}
}
