package step

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/fakequant"
	"github.com/cage-qat/cage/host/model"
)

// keepOperandsRotated replaces quantizers by quantizers that do not rotate back, in each group of
// operands with the same rotation for which the forward and backward passes then rotate less. The
// rotation that restores Q(x) for a correction or a measure does not count, because a run with λ =
// 0 must compute the same as one without a method. The update of a weight needs Q(x) itself, so its
// rule gets the rotation. If the backward pass quantizes x and W, nothing stays rotated. The maps
// and slices of the caller's plan are not changed.
func (p *Plan) keepOperandsRotated() error {
	if p.FullRotations || p.Unquantized && len(p.Backward) > 0 ||
		len(p.Activations) == 0 || len(p.Weights) == 0 {
		return nil
	}
	p.Weights, p.Activations = maps.Clone(p.Weights), maps.Clone(p.Activations)
	p.Rules, p.Pieces = slices.Clone(p.Rules), maps.Clone(p.Pieces)
	for tokens, list := range p.Pieces {
		p.Pieces[tokens] = maps.Clone(list)
	}
groups:
	for _, g := range operandGroups(p.Model.ActivationSites(p.Batch, p.Context)) {
		operands := p.operandsOf(g)
		rotated := make([]*fakequant.Rotated, len(operands))
		saved := 0.0
		for i, o := range operands {
			r, err := o.keepRotated()
			if err != nil {
				return err
			}
			if r == nil || i > 0 && r.Block != rotated[0].Block {
				continue groups
			}
			rotated[i] = r
			saved += r.Saved * float64(o.size)
		}
		if saved <= 0 {
			continue
		}
		block := rotated[0].Block
		for i, o := range operands {
			o.quantizers[o.name] = rotated[i].Quantizer
		}
		for i, r := range p.Rules {
			if slices.Contains(g.weights, r.Name) {
				p.Rules[i].Rotation = block
			}
		}
		for tokens, list := range p.Pieces {
			for _, s := range g.sites {
				r, err := operand{name: s.Name, quantizers: list}.keepRotated()
				if err != nil {
					return err
				}
				if r == nil || r.Block != block {
					return fmt.Errorf("step: the quantizer of %s rotates %d tokens differently from a batch",
						s.Name, tokens)
				}
				list[s.Name] = r.Quantizer
			}
		}
	}
	return nil
}

// An operandGroup consists of activation sites and weights that are multiplied only with each
// other. Either all of them or none of them stay rotated.
type operandGroup struct {
	sites   []model.ActivationSite
	weights []string
}

func (g operandGroup) has(operand string) bool {
	isSite := func(s model.ActivationSite) bool { return s.Name == operand }
	return slices.Contains(g.weights, operand) || slices.ContainsFunc(g.sites, isSite)
}

func operandGroups(sites []model.ActivationSite) []operandGroup {
	var groups []operandGroup
	for _, s := range sites {
		if len(s.Feeds) == 0 {
			continue
		}
		joined := operandGroup{[]model.ActivationSite{s}, slices.Clone(s.Feeds)}
		groups = slices.DeleteFunc(groups, func(g operandGroup) bool {
			shares := slices.ContainsFunc(s.Feeds, g.has)
			if shares {
				joined.sites = append(joined.sites, g.sites...)
				joined.weights = append(joined.weights, g.weights...)
			}
			return shares
		})
		slices.Sort(joined.weights)
		joined.weights = slices.Compact(joined.weights)
		groups = append(groups, joined)
	}
	return groups
}

type operand struct {
	name       string
	size       int // number of elements
	quantizers map[string]*fakequant.Quantizer
}

func (p *Plan) operandsOf(g operandGroup) []operand {
	var list []operand
	for _, s := range g.sites {
		list = append(list, operand{s.Name, s.Tokens * s.Width, p.Activations})
	}
	for _, param := range p.Model.Params() {
		if slices.Contains(g.weights, param.Name) {
			list = append(list, operand{param.Name, param.Size(), p.Weights})
		}
	}
	return list
}

func (o operand) keepRotated() (*fakequant.Rotated, error) {
	q, ok := o.quantizers[o.name]
	if !ok {
		return nil, nil
	}
	r, err := q.KeepRotated()
	if err != nil {
		return nil, fmt.Errorf("step: the quantizer of %s: %w", o.name, err)
	}
	return r, nil
}

// findCodes finds the weights in blocks whose products are computed from codes. The device must
// multiply codes, and the quantizers of both the weight and its activation must return them. With
// device.ShardFull there are none: values are all-gathered, but codes are not.
func (p *Plan) findCodes(d *engine.Device) {
	p.codes = map[string][]engine.Spec{}
	if d.Products() != device.IntegerProducts || p.Shard == device.ShardFull && p.replicas > 1 {
		return
	}
	specs := func(tensor string, q *fakequant.Quantizer) (specs []engine.Spec) {
		if q != nil {
			for i, shape := range q.CodeShapes() {
				specs = append(specs, engine.Spec{Name: codeName(tensor, i), Shape: shape})
			}
		}
		return specs
	}
	for _, s := range inputSites(p.Model, p.Batch, p.Context) {
		if specs(s.Name, p.Activations[s.Name]) == nil {
			continue
		}
		for _, weight := range s.Feeds {
			if codes := specs(weight, p.Weights[weight]); codes != nil {
				p.codes[weight] = codes
			}
		}
	}
}
