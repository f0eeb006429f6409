package export

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

type layout struct {
	// float returns the type of a tensor that is not packed.
	float func(p part, w weight) string
	// unpacked returns why a quantized weight is stored as floats, or nil if it gets one of types.
	unpacked func(p part, w weight) error
	// types lists the types for a quantized weight, in order of preference. They depend only on its
	// settings and on the numbers of its grid.
	types func(w weight) []string
	// pack determines how a type stores a weight, or returns an error if it cannot represent it.
	pack func(p part, w weight, typ string) (packing, error)
	// fused returns the tensor that programs fuse with a tensor, so that both must be stored in the
	// same way; if nil, there are none.
	fused func(tensor string) string
	// needsGrid reports whether unpacked, types and pack need the weight's grid.
	needsGrid bool
	// exactHint ends the error about quantized weights that cannot be stored exactly, and
	// floatsHint the error about quantized weights that would be stored as floats.
	exactHint, floatsHint string
}

// packing is how a type stores a quantized weight.
type packing struct {
	scheme              // only its type if the format is GGUF, or plain floats
	global      float32 // global scale of NVFP4
	globalInput float32 // that of the inputs of the weight's layer; see inputs
	err         error   // why the type cannot represent the weight; nil if it can
}

// plan chooses the type of each tensor. All weights with the same settings and grid get the first
// type that can represent them all, so that the type does not depend on the values of a single
// weight, such as zeros. unpacked is an error if weights are stored as floats without o.Floats.
func (s *source) plan(parts []part, o Options, l layout) (list []Stored, unpacked, err error) {
	var refused, floats refusals
	groups := map[string][]int{} // indices of the weights to pack, by settings and grid
	quantized := 0
	s.grids = l.needsGrid
	plain := func(t *Stored, w weight, reason error) {
		if t.Type = l.float(t.part, w); reason != nil && !o.Inexact && !holds(t.Type, w.values) {
			refused.add(t.Name, false, fmt.Errorf("it is stored as floats because %w, but %s "+
				"does not represent all values: --dtype f32 is exact", reason, t.Type))
		} else if err := checkFits(t.Type, w.values); err != nil {
			refused.add(t.Name, false, err)
		} else if reason != nil {
			t.Note = reason.Error()
			floats.add(t.Name, true, reason)
		}
	}
	for _, p := range parts {
		w, err := s.weight(p.Param)
		if err != nil {
			return nil, nil, err
		}
		t := Stored{Name: p.Tensor, Param: p.Param.Name,
			Shape: append([]int{len(p.Rows)}, p.Param.Dims[1:]...), Quantized: w.quantized, part: p,
			sum: sumOf(pick(p, w.values))}
		var reason error
		if w.quantized {
			quantized++
			reason = l.unpacked(p, w)
		}
		switch pack := w.quantized && reason == nil; {
		case pack && w.grid == nil && l.needsGrid:
			refused.add(p.Tensor, true, w.gridErr)
		case pack:
			key := w.settings
			if w.grid != nil {
				key += fmt.Sprint(w.grid.Numbers)
			}
			for _, typ := range l.types(w) {
				how, err := l.pack(p, w, typ)
				how.typ, how.err = typ, err
				t.tried = append(t.tried, how)
			}
			groups[key] = append(groups[key], len(list))
		default:
			plain(&t, w, reason)
		}
		list = append(list, t)
	}
	for _, members := range groups {
		for i := range list[members[0]].tried {
			failed := func(member int) bool { return list[member].tried[i].err != nil }
			if slices.ContainsFunc(members, failed) {
				continue
			}
			for _, member := range members {
				t := &list[member]
				t.packing, t.Type = &t.tried[i], t.tried[i].typ
			}
			break
		}
	}
	for i := range list {
		a := &list[i]
		j := slices.IndexFunc(list[i:], func(b Stored) bool {
			return l.fused != nil && l.fused(a.Name) == b.Name
		})
		if j <= 0 {
			continue
		}
		reason := share(a, &list[i+j])
		for _, t := range []*Stored{a, &list[i+j]} {
			if reason == nil || t.packing == nil {
				continue
			}
			w, err := s.weight(t.part.Param)
			if err != nil {
				return nil, nil, err
			}
			t.packing, t.tried = nil, nil
			plain(t, w, reason)
		}
	}
	for _, t := range list {
		var reasons []error
		for _, p := range t.tried {
			if t.packing == nil && p.err != nil {
				reasons = append(reasons, fmt.Errorf("as %s: %w", p.typ, p.err))
			}
		}
		if len(reasons) > 0 {
			refused.add(t.Name, true, errors.Join(reasons...))
		}
	}
	if len(floats.reasons) > 0 && !o.Floats {
		unpacked = &WeightsError{fmt.Errorf("%d of %d quantized weights would be stored as floats%s\n%s",
			floats.count, quantized, floats.list(), l.floatsHint)}
	}
	return list, unpacked, refused.err(l.exactHint)
}

// share chooses the first packing that two tensors can share, unless neither is packed. It returns
// why there is none.
func share(a, b *Stored) error {
	if a.packing == nil && b.packing == nil {
		return nil
	}
	for i, p := range a.tried {
		for j, q := range b.tried {
			if p.err == nil && q.err == nil && p.scheme == q.scheme {
				a.packing, b.packing = &a.tried[i], &b.tried[j]
				a.Type, b.Type = p.typ, q.typ
				return nil
			}
		}
	}
	how := func(t *Stored) string {
		switch {
		case t.packing != nil:
			return t.packing.String()
		case t.Quantized:
			return "not packed"
		}
		return "not quantized"
	}
	name := func(t *Stored) string { return path.Ext(strings.TrimSuffix(t.Name, ".weight"))[1:] }
	return fmt.Errorf("vLLM fuses %s (%s) and %s (%s): both need the same quantizer",
		name(a), how(a), name(b), how(b))
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
