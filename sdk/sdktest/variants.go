package sdktest

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/cage-qat/cage/sdk"
)

// maxExhaustive is the largest number of values of an integer parameter for which all of them are
// tried.
const maxExhaustive = 9

// mixtures is the number of random combinations of parameter values.
const mixtures = 24

// coreMixtures is how many of the mixtures take part in every check.
const coreMixtures = 8

// variant is a choice of settings: all values, and those that are not the default.
type variant struct {
	values  sdk.Values
	changed map[string]any
	about   sdk.Description
}

// claims reports whether the plugin makes a claim under these settings.
func (v variant) claims(name sdk.ClaimName) bool {
	_, ok := v.about.Claimed(name, v.values)
	return ok
}

// space has the settings of a plugin that the kit tries.
type space struct {
	// singles begins with the defaults, followed by one variant for each other
	// value of one parameter.
	singles []variant
	// claimed are some of singles: those with the settings under which a claim is made.
	claimed []variant
	// mixed are random combinations.
	mixed []variant
}

// core are the variants of most checks: one parameter at a time, and some mixtures.
func (s space) core() []variant {
	return slices.Concat(s.singles, s.mixed[:min(coreMixtures, len(s.mixed))])
}

func newSpace(d sdk.Description, given map[string]any) (space, error) {
	base, err := newVariant(d, given)
	if err != nil {
		return space{}, err
	}
	s := space{singles: []variant{base}}
	var free []sdk.Parameter
	for _, p := range d.Parameters {
		if _, fixed := given[p.Name]; fixed {
			continue
		}
		free = append(free, p)
		for _, v := range samples(p)[1:] {
			settings := maps.Clone(given)
			settings[p.Name] = v
			changed, err := newVariant(d, settings)
			if err != nil {
				return s, fmt.Errorf("a value inside the declared range is not accepted: %w", err)
			}
			s.singles = append(s.singles, changed)
		}
	}
	for _, c := range d.Claims {
		settings := maps.Clone(given)
		for name, v := range c.When {
			if _, fixed := given[name]; !fixed {
				settings[name] = v
			}
		}
		v, err := newVariant(d, settings)
		if err != nil {
			return s, err
		}
		if len(c.When) > 0 && v.claims(c.Name) && len(v.changed) > len(base.changed) {
			s.singles, s.claimed = append(s.singles, v), append(s.claimed, v)
		}
	}
	if len(free) < 2 {
		return s, nil
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range mixtures {
		settings := maps.Clone(given)
		for _, p := range free {
			list := samples(p)
			settings[p.Name] = list[r.IntN(len(list))]
		}
		mixed, err := newVariant(d, settings)
		if err != nil {
			return s, err
		}
		s.mixed = append(s.mixed, mixed)
	}
	return s, nil
}

func newVariant(d sdk.Description, settings map[string]any) (variant, error) {
	values, err := d.Resolve(settings)
	if err != nil {
		return variant{}, err
	}
	v := variant{values: values, changed: map[string]any{}, about: d}
	for _, p := range d.Parameters {
		if got := values.Map()[p.Name]; got != p.Default {
			v.changed[p.Name] = got
		}
	}
	return v, nil
}

// samples are the values of a parameter that are tried, the default first: every
// choice, both ends of a range, and something beyond the default where a range is open.
func samples(p sdk.Parameter) []any {
	list := []any{p.Default}
	add := func(v any) {
		if !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	def, _ := p.Convert(p.Default) // cannot fail: the check of the description has done it, too
	switch {
	case p.Type == sdk.TypeBool:
		add(true)
		add(false)
	case p.Type == sdk.TypeString:
		for _, c := range p.Choices {
			add(c)
		}
	case p.Type == sdk.TypeInt && p.Max-p.Min < maxExhaustive:
		for i := range int(p.Max-p.Min) + 1 { // a float64 as the counter would stand still above 2⁵³
			add(int(p.Min) + i)
		}
	case p.Type == sdk.TypeInt:
		lo, hi := ends(p, float64(def.(int)))
		add(int(lo))
		add(int(hi))
	case p.Type == sdk.TypeFloat:
		lo, hi := ends(p, def.(float64))
		add(lo)
		add(hi)
	}
	return list
}

// ends are the two ends of a range. An end that is infinite, or nearly so, is replaced by a
// number beyond the default, but inside the range.
func ends(p sdk.Parameter, def float64) (lo, hi float64) {
	const open = 1 << 31
	lo, hi = p.Min, p.Max
	if lo < -open {
		lo = math.Max(p.Min, math.Min(-2*math.Abs(def)-1, hi))
	}
	if hi > open {
		hi = math.Min(p.Max, math.Max(2*math.Abs(def)+1, lo))
	}
	return lo, hi
}
