package export

import (
	"errors"
	"fmt"
)

// chooseTypes finds types for quantized weights: for all that have the same settings and the same
// grid the first of the types that holds every one of them, so that what a single weight happens
// to hold, such as zeros, decides nothing. It returns the types by the names of the tensors; a
// weight of a group that no type holds is refused.
func chooseTypes[T any](s *source, parts []part, types func(weight) []T,
	holds func(part, weight, T) error, refused *refusals) (map[string]T, error) {
	type group struct {
		types []T
		at    int // the type that is tried
	}
	groups, of := map[string]*group{}, make([]*group, len(parts))
	fits := make([]int, len(parts)) // the type of its group that is known to hold a part
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
				again = true // those that came before have another type now
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

// leaving are quantized weights that a format stores as floats, each with the reason.
type leaving struct {
	refusals
	quantized int // all quantized weights, packed or not
}

// err refuses an export in which they leave as floats, unless that is allowed.
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
