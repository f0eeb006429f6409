package export

import (
	"errors"
	"fmt"
)

// chooseTypes chooses types for quantized weights: for all weights with the same settings and grid,
// the first type that can represent each of them, so that the values of a single weight, such as
// zeros, do not matter. It returns the types by tensor name; a weight that no type can represent is
// added to refused.
func chooseTypes[T any](s *source, parts []part, types func(weight) []T,
	holds func(part, weight, T) error, refused *refusals) (map[string]T, error) {
	type group struct {
		types []T
		at    int // index of the type that is tried
	}
	groups, of := map[string]*group{}, make([]*group, len(parts))
	fits := make([]int, len(parts)) // the type of its group that is known to represent a part
	for again := true; again; {
		again = false
		for i, p := range parts {
			if g := of[i]; g != nil && (g.at == len(g.types) || fits[i] == g.at) {
				continue
			}
			w, err := s.weight(p.param)
			if err != nil {
				return nil, err
			}
			if of[i] == nil {
				key := w.settings
				if w.grid != nil {
					key += fmt.Sprint(w.grid.Numbers)
				}
				if groups[key] == nil {
					groups[key] = &group{types: types(w)}
				}
				of[i] = groups[key]
			}
			g := of[i]
			for ; g.at < len(g.types) && holds(p, w, g.types[g.at]) != nil; g.at++ {
				again = true // earlier weights must be checked with the new type
			}
			fits[i] = g.at
		}
	}
	chosen := map[string]T{}
	for i, p := range parts {
		g := of[i]
		if g.at < len(g.types) {
			chosen[p.name] = g.types[g.at]
			continue
		}
		w, err := s.weight(p.param)
		if err != nil {
			return nil, err
		}
		var faults []error
		for _, typ := range g.types {
			if err := holds(p, w, typ); err != nil {
				faults = append(faults, fmt.Errorf("as %v: %w", typ, err))
			}
		}
		if len(faults) > 0 {
			refused.add(p.name, true, errors.Join(faults...))
		}
	}
	return chosen, nil
}

// leaving collects the quantized weights that a format stores as floats, with the reasons.
type leaving struct {
	refusals
	quantized int // all quantized weights, packed or not
}

// err returns an error if there are such weights, unless that is allowed.
func (l *leaving) err(allowed bool, how string) error {
	if len(l.reasons) == 0 || allowed {
		return nil
	}
	count := 0
	for _, list := range l.tensors {
		count += len(list)
	}
	return fmt.Errorf("%d of %d quantized weights would be stored as floats%s\n%s",
		count, l.quantized, l.list(), how)
}
