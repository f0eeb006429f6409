package sdk

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Claim is a property of an algorithm beyond the interface: either a promise, which the conformance
// kit then checks, or a behavior that is a mistake in most algorithms, which the kit then allows.
type Claim struct {
	Name ClaimName `json:"name"`
	// Value is one of the scopes for [ClaimScaleScope] and [ClaimKeyScope], a float64 for
	// [ClaimDescent], and nil for all other claims.
	Value any `json:"value,omitempty"`
	// When restricts the claim to settings in which each of these parameters has the given value;
	// empty means all settings. If several claims with the same name apply, the last one counts.
	When map[string]any `json:"when,omitempty"`
}

// ClaimName names a claim.
type ClaimName string

// Claims that a quantizer can make.
const (
	// ClaimIdempotent promises Q(Q(x)) = Q(x): values on the grid are unchanged.
	ClaimIdempotent ClaimName = "idempotent"
	// ClaimAnyRounding allows levels other than the nearest, as in stochastic rounding. The noise
	// may depend on the index of an element in its tensor. A quantizer with a separate program for
	// evaluation must round to nearest there.
	ClaimAnyRounding ClaimName = "any_rounding"
	// ClaimUnbiased promises that the mean of Q(x) over the noise of training is x, for numbers
	// within the range of the grid.
	ClaimUnbiased ClaimName = "unbiased"
	// ClaimAnyGradient allows a surrogate other than the identity on the entries that the mask passes.
	ClaimAnyGradient ClaimName = "any_gradient"
	// ClaimAnyMask allows a mask that stops some entries and passes others that are beyond the ends of
	// the grid, such as a fixed clipping of gradients.
	ClaimAnyMask ClaimName = "any_mask"
	// ClaimTrainingState allows state that changes values in training and not in evaluation.
	ClaimTrainingState ClaimName = "training_state"
	// ClaimOwnLoss allows the quantizer's own backward pass to give nonzero gradients where dy is
	// zero, such as those of a regularization loss that it adds.
	ClaimOwnLoss ClaimName = "own_loss"
	// ClaimTies is for grids on which some entries of every tensor, such as the largest, are
	// exactly halfway between two levels. Homogeneity is then tested with powers of two only.
	ClaimTies ClaimName = "ties"
	// ClaimScaleScope declares which elements may share a scale. Without it, elements of the same
	// row may share a scale; in a weight, all elements may.
	ClaimScaleScope ClaimName = "scale_scope"
	// ClaimKeyScope is the scale scope of attention keys if it differs from that of other sites.
	ClaimKeyScope ClaimName = "key_scope"
	// ClaimAnyZeroCode allows a nonzero code for the value zero, as when codes count levels from
	// the lowest.
	ClaimAnyZeroCode ClaimName = "any_zero_code"
	// ClaimPrunes allows entries to become zero, with mask 0, because other entries are larger. They
	// may stay zero where NaN makes NaN of the other values of their scale.
	ClaimPrunes ClaimName = "prunes"
)

// Claims that an optimizer can make.
const (
	// ClaimOwnDecay allows an optimizer to shrink weights itself.
	ClaimOwnDecay ClaimName = "own_decay"
	// ClaimByName allows programs that depend on the name of the tensor.
	ClaimByName ClaimName = "by_name"
	// ClaimNoDescent is for optimizers that do not minimize a loss on their own.
	ClaimNoDescent ClaimName = "no_descent"
	// ClaimStill promises that the direction is zero as long as all gradients have been zero.
	ClaimStill ClaimName = "still"
	// ClaimDescent promises that, at some learning rate, the optimizer reduces a quadratic loss to
	// this fraction of its initial value, instead of the fraction required of all plugins.
	ClaimDescent ClaimName = "descent"
)

// The values of [ClaimScaleScope] and [ClaimKeyScope]: the elements that share a scale, or another
// statistic that levels depend on.
const (
	ScopeBlock  = "block"  // a part of a row
	ScopeRow    = "row"    // a row: an output channel of a weight, a token of an activation
	ScopeColumn = "column" // one entry of each row
	ScopeTensor = "tensor"
)

var scopes = []string{ScopeBlock, ScopeRow, ScopeColumn, ScopeTensor}

// ClaimNames lists the claims that plugins of a kind can make.
func ClaimNames(kind Kind) []ClaimName {
	if kind == KindOptimizer {
		return []ClaimName{ClaimOwnDecay, ClaimByName, ClaimNoDescent, ClaimStill, ClaimDescent}
	}
	return []ClaimName{ClaimIdempotent, ClaimAnyRounding, ClaimUnbiased, ClaimAnyGradient,
		ClaimAnyMask, ClaimTrainingState, ClaimOwnLoss, ClaimTies, ClaimScaleScope, ClaimKeyScope,
		ClaimAnyZeroCode, ClaimPrunes}
}

func (c Claim) check(d Description) error {
	names := slices.Concat(ClaimNames(KindQuantizer), ClaimNames(KindOptimizer))
	if !slices.Contains(names, c.Name) {
		return fmt.Errorf("unknown claim: want one of %q", names)
	}
	switch c.Name {
	case ClaimScaleScope, ClaimKeyScope:
		if s, ok := c.Value.(string); !ok || !slices.Contains(scopes, s) {
			return fmt.Errorf("got value %v, want one of %q", c.Value, scopes)
		}
	case ClaimDescent:
		if v, ok := c.Value.(float64); !ok || !(v > 0 && v <= math.MaxFloat64) {
			return fmt.Errorf("got value %v, want a float above 0", c.Value)
		}
	default:
		if c.Value != nil {
			return errors.New("the field Value must be nil: " +
				"only scale_scope, key_scope and descent take one")
		}
	}
	for name, v := range c.When {
		i := slices.IndexFunc(d.Parameters, func(p Parameter) bool { return p.Name == name })
		if i < 0 {
			return fmt.Errorf("the field When names %s, which is not a parameter", name)
		}
		if err := d.Parameters[i].check(v); err != nil {
			return fmt.Errorf("the field When: %s: %w", name, err)
		}
	}
	return nil
}

// Claimed reports whether the plugin makes a claim under the given settings, and returns the
// claim's value, or nil if it has none.
func (d Description) Claimed(name ClaimName, settings Values) (value any, ok bool) {
	for _, c := range d.Claims {
		if c.Name == name && c.holds(settings) {
			value, ok = c.Value, true
		}
	}
	return value, ok
}

func (c Claim) holds(settings Values) bool {
	for name, v := range c.When {
		if n, isInt := v.(int); isInt && settings.m[name] == float64(n) { // an integer for a float
			continue
		}
		if settings.m[name] != v {
			return false
		}
	}
	return true
}

// String formats the claim, for example: ties where grid = "full".
func (c Claim) String() string {
	text := string(c.Name)
	if c.Value != nil {
		text += fmt.Sprint(" ", c.Value)
	}
	var when []string
	for _, name := range slices.Sorted(maps.Keys(c.When)) {
		when = append(when, name+" = "+literal(c.When[name]))
	}
	if len(when) > 0 {
		text += " where " + strings.Join(when, " and ")
	}
	return text
}
