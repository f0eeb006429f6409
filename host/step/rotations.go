package step

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cage-qat/cage/host/lower"
	"github.com/cage-qat/cage/host/model"
)

// Rotations says what becomes of rotations in products whose operands, activations and
// weights, are all rotated alike by their quantizers.
type Rotations string

// The ways to multiply rotated operands.
const (
	// HalfRotations leaves operands rotated where fewer rotations are computed that way.
	// In exact arithmetic products and gradients are the same. It is the default.
	HalfRotations Rotations = "half"
	// FullRotations rotates every operand back.
	FullRotations Rotations = "full"
)

// leaveRotated replaces the quantizers of operands that may stay rotated, and notes the
// rotation in the rules of weights, whose updates need Q(x) itself. The maps and lists
// of the caller's plan stay as they are.
func (p *Plan) leaveRotated() error {
	if p.Rotations == FullRotations || len(p.Activations) == 0 || len(p.Weights) == 0 {
		return nil
	}
	p.Weights, p.Activations, p.Rules = maps.Clone(p.Weights), maps.Clone(p.Activations), slices.Clone(p.Rules)
	for _, g := range operands(p.Model.ActivationSites(p.Batch, p.Context)) {
		if err := p.leaveGroupRotated(g); err != nil {
			return err
		}
	}
	return nil
}

// operandGroup are activation sites and weights that are multiplied with each other and
// with no others: either all of them stay rotated or none.
type operandGroup struct {
	sites   []model.ActivationSite
	weights []string
}

// operands divides the operands of all products into groups.
func operands(sites []model.ActivationSite) []operandGroup {
	var groups []operandGroup
	for _, s := range sites {
		joined := operandGroup{[]model.ActivationSite{s}, slices.Clone(s.Feeds)}
		groups = slices.DeleteFunc(groups, func(g operandGroup) bool {
			shares := slices.ContainsFunc(g.weights, func(w string) bool { return slices.Contains(s.Feeds, w) })
			if shares {
				joined.sites, joined.weights = append(joined.sites, g.sites...), append(joined.weights, g.weights...)
			}
			return shares
		})
		slices.Sort(joined.weights)
		joined.weights = slices.Compact(joined.weights)
		groups = append(groups, joined)
	}
	return groups
}

// leaveGroupRotated leaves a group rotated if all of it is rotated alike and the passes
// through the quantizers take fewer rotations then. Restoring Q(x) for a correction or a
// measure does not count: with λ = 0 the same has to be computed as without a method.
func (p *Plan) leaveGroupRotated(g operandGroup) error {
	weights, activations := map[string]*lower.Unrotated{}, map[string]*lower.Unrotated{}
	saved, block := 0.0, 0
	join := func(into map[string]*lower.Unrotated, name string, q lower.Quantizer, size int) (bool, error) {
		r, ok := q.(lower.Rotating)
		if !ok {
			return false, nil
		}
		u, err := r.Unrotated()
		switch {
		case err != nil:
			return false, fmt.Errorf("step: the quantizer of %s: %w", name, err)
		case u == nil || block != 0 && u.Block != block:
			return false, nil
		}
		into[name], block = u, u.Block
		saved += u.Saved * float64(size)
		return true, nil
	}
	for _, s := range g.sites {
		if ok, err := join(activations, s.Name, p.Activations[s.Name], s.Tokens*s.Width); !ok {
			return err
		}
	}
	for _, w := range g.weights {
		if ok, err := join(weights, w, p.Weights[w], p.elements(w)); !ok {
			return err
		}
	}
	if saved <= 0 {
		return nil
	}
	for name, u := range activations {
		p.Activations[name] = u.Quantizer
	}
	for name, u := range weights {
		p.Weights[name] = u.Quantizer
	}
	for i, r := range p.Rules {
		if u, ok := weights[r.Name]; ok {
			p.Rules[i].Rotation = u.Block
		}
	}
	return nil
}

// elements is the size of a parameter, 0 when there is none of that name.
func (p *Plan) elements(name string) int {
	for _, param := range p.Model.Params() {
		if param.Name == name {
			return param.Size()
		}
	}
	return 0
}
