package sdktest

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/cage-qat/cage/sdk"
)

// few is the largest number of values of an integer parameter that are all tried.
const few = 9

// mixtures is the number of random combinations of parameter values.
const mixtures = 24

// coreMixtures of them take part in every check.
const coreMixtures = 8

// variant is a choice of settings: complete, and what of it is not the default.
type variant struct {
	values  sdk.Values
	changed map[string]any
}

// space is what the kit tries of a plugin's parameters.
type space struct {
	// singles begins with the defaults, followed by one variant for each other
	// value of one parameter.
	singles []variant
	// mixed are random combinations.
	mixed []variant
}

// core are the variants of most checks: one parameter at a time, and some mixtures.
func (s space) core() []variant {
	return slices.Concat(s.singles, s.mixed[:min(coreMixtures, len(s.mixed))])
}

// newSpace lists the variants around the given settings, which stay fixed.
func newSpace(d sdk.Description, given map[string]any) (space, error) {
	base, err := newVariant(d, given)
	if err != nil {
		return space{}, err
	}
	s := space{singles: []variant{base}}
	values := map[string][]any{}
	var names []string
	for _, p := range d.Parameters {
		if _, fixed := given[p.Name]; fixed {
			continue
		}
		names, values[p.Name] = append(names, p.Name), samples(p)
		for _, v := range values[p.Name] {
			if v == p.Default {
				continue
			}
			changed, err := newVariant(d, merged(given, p.Name, v))
			if err != nil {
				return s, fmt.Errorf("a value inside the declared range is not accepted: %w", err)
			}
			s.singles = append(s.singles, changed)
		}
	}
	if len(names) < 2 {
		return s, nil
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range mixtures {
		settings := maps.Clone(given)
		for _, name := range names {
			settings[name] = values[name][r.IntN(len(values[name]))]
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
	v := variant{values: values, changed: map[string]any{}}
	for _, p := range d.Parameters {
		if got := values.Map()[p.Name]; got != p.Default {
			v.changed[p.Name] = got
		}
	}
	return v, nil
}

func merged(settings map[string]any, name string, v any) map[string]any {
	out := maps.Clone(settings)
	out[name] = v
	return out
}

// samples are the values of a parameter that are tried, the default first: every
// choice, both ends of a range, something beyond the default where it is open.
func samples(p sdk.Parameter) []any {
	list := []any{p.Default}
	add := func(v any) {
		if !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	switch p.Type {
	case sdk.TypeBool:
		add(true)
		add(false)
	case sdk.TypeString:
		for _, c := range p.Choices {
			add(c)
		}
	case sdk.TypeInt:
		if p.Max-p.Min < few {
			for v := p.Min; v <= p.Max; v++ {
				add(int(v))
			}
		}
		for _, v := range ends(p) {
			add(int(v))
		}
	case sdk.TypeFloat:
		for _, v := range ends(p) {
			add(v)
		}
	}
	return list
}

// ends are the two ends of a range. For one that is open, or as good as open, the
// default doubled and moved stands in.
func ends(p sdk.Parameter) []float64 {
	const open = 1 << 31
	def, ok := p.Default.(float64)
	if n, isInt := p.Default.(int); isInt {
		def, ok = float64(n), true
	}
	if !ok {
		return nil
	}
	lo, hi := p.Min, p.Max
	if lo < -open {
		lo = math.Min(-2*math.Abs(def)-1, hi)
	}
	if hi > open {
		hi = math.Max(2*math.Abs(def)+1, lo)
	}
	return []float64{lo, hi}
}
