package export

import (
	"errors"
	"fmt"
	"strings"
)

type layout struct {
	// float returns the type of a tensor that is not packed.
	float func(p part, w weight) string
	// unpacked returns why a quantized weight is stored as floats, or nil if it gets one of types.
	unpacked func(p part, w weight) error
	// types lists the types for a quantized weight, in order of preference. check returns an error
	// if the given type cannot represent the weight.
	types func(w weight) []string
	check func(p part, w weight, typ string) error
	// needsGrid reports whether types and check need the weight's grid.
	needsGrid bool
	// exactHint ends the error about quantized weights that cannot be stored exactly, and
	// floatsHint the error about quantized weights that would be stored as floats.
	exactHint, floatsHint string
}

// plan chooses the type of each tensor. All weights with the same settings and grid get the first
// type that can represent them all, so that the type does not depend on the values of a single
// weight, such as zeros. unpacked is an error if weights are stored as floats without o.Floats.
func (s *source) plan(parts []part, o Options, l layout) (list []Stored, unpacked, err error) {
	var refused, floats refusals
	var packed []part
	quantized := 0
	for _, p := range parts {
		w, err := s.weight(p.Param)
		if err != nil {
			return nil, nil, err
		}
		t := Stored{Name: p.Tensor, Param: p.Param.Name, Type: l.float(p, w),
			Shape: append([]int{len(p.Rows)}, p.Param.Dims[1:]...), Quantized: w.quantized, part: p}
		var reason error
		if w.quantized {
			quantized++
			reason = l.unpacked(p, w)
		}
		switch pack := w.quantized && reason == nil; {
		case pack && w.grid == nil && l.needsGrid:
			refused.add(p.Tensor, true, w.gridErr)
		case pack:
			packed = append(packed, p)
		case reason != nil && !o.Inexact && !holds(t.Type, w.values):
			refused.add(p.Tensor, false, fmt.Errorf("it is stored as floats because %w, but %s "+
				"does not represent all values: --dtype f32 is exact", reason, t.Type))
		default:
			if err := checkFits(t.Type, w.values); err != nil {
				refused.add(p.Tensor, false, err)
			} else if reason != nil {
				t.Note = reason.Error()
				floats.add(p.Tensor, true, reason)
			}
		}
		list = append(list, t)
	}
	tried := map[string]int{} // index of the type that is tried, by settings and grid
	chosen := map[string]string{}
	keys, checked := map[string]string{}, map[string]int{} // of the last check of each weight
	// After a change of type, earlier weights must be checked again.
	for again := true; again; {
		again = false
		for _, p := range packed {
			if key, ok := keys[p.Tensor]; ok && checked[p.Tensor] == tried[key] {
				continue
			}
			w, err := s.weight(p.Param)
			if err != nil {
				return nil, nil, err
			}
			types, key := l.types(w), w.settings
			if w.grid != nil {
				key += fmt.Sprint(w.grid.Numbers)
			}
			for tried[key] < len(types) && l.check(p, w, types[tried[key]]) != nil {
				tried[key]++
				again = true
			}
			keys[p.Tensor], checked[p.Tensor] = key, tried[key]
			if chosen[p.Tensor] = ""; tried[key] < len(types) {
				chosen[p.Tensor] = types[tried[key]]
			}
		}
	}
	for _, p := range packed {
		if chosen[p.Tensor] != "" {
			continue
		}
		w, err := s.weight(p.Param)
		if err != nil {
			return nil, nil, err
		}
		var reasons []error
		for _, typ := range l.types(w) {
			if err := l.check(p, w, typ); err != nil {
				reasons = append(reasons, fmt.Errorf("as %s: %w", typ, err))
			}
		}
		if len(reasons) > 0 {
			refused.add(p.Tensor, true, errors.Join(reasons...))
		}
	}
	for i, t := range list {
		if typ, ok := chosen[t.Name]; ok {
			list[i].Type = typ
		}
	}
	if len(floats.reasons) > 0 && !o.Floats {
		unpacked = &WeightsError{fmt.Errorf("%d of %d quantized weights would be stored as floats%s\n%s",
			floats.count, quantized, floats.list(), l.floatsHint)}
	}
	return list, unpacked, refused.err(l.exactHint)
}

// refusals collects the reasons why tensors cannot be stored, and the tensors for each reason.
type refusals struct {
	reasons []string
	tensors map[string][]string
	count   int // tensors
	// quantized and plain report whether the tensors include quantized and other weights.
	quantized, plain bool
}

func (r *refusals) add(tensor string, quantized bool, err error) {
	reason := err.Error()
	if r.tensors == nil {
		r.tensors = map[string][]string{}
	}
	if r.tensors[reason] == nil {
		r.reasons = append(r.reasons, reason)
	}
	r.tensors[reason] = append(r.tensors[reason], tensor)
	r.count++
	r.quantized, r.plain = r.quantized || quantized, r.plain || !quantized
}

// list returns, for each reason, a line with the first tensor and the number of further ones,
// followed by the reason.
func (r *refusals) list() string {
	var text strings.Builder
	for _, reason := range r.reasons {
		list := r.tensors[reason]
		fmt.Fprintf(&text, "\n  %s", list[0])
		if len(list) > 1 {
			fmt.Fprintf(&text, " and %d more", len(list)-1)
		}
		fmt.Fprintf(&text, ":\n    %s", strings.ReplaceAll(reason, "\n", "\n    "))
	}
	return text.String()
}

// err returns one error for all tensors, or nil if there are none. quantized is the hint for
// quantized weights.
func (r *refusals) err(quantized string) error {
	if len(r.reasons) == 0 {
		return nil
	}
	text := "these tensors cannot be stored exactly" + r.list()
	if r.quantized {
		text += "\n" + quantized
	}
	if r.plain {
		text += "\n--dtype f32 stores the weights that are not packed as they are"
	}
	return &WeightsError{errors.New(text)}
}

// A WeightsError reports that weights cannot be stored as wanted.
type WeightsError struct{ error }

// Unwrap returns the reason.
func (e *WeightsError) Unwrap() error { return e.error }
