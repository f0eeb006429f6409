package build

import (
	"slices"
	"testing"

	"github.com/cage-qat/cage/sdk/spec"
)

// TestDiffering checks that a resumed run notices programs that have changed, appeared or
// disappeared, and that an evaluation, which needs fewer, notices changed ones.
func TestDiffering(t *testing.T) {
	recorded := map[string]string{"same": "1", "changed": "2", "gone": "3"}
	now := map[string]string{"same": "1", "changed": "4", "new": "5"}
	if got := Differing(recorded, now); !slices.Equal(got, []string{"changed", "gone", "new"}) {
		t.Errorf("differing: %v", got)
	}
	if got := Changed(recorded, now); !slices.Equal(got, []string{"changed"}) {
		t.Errorf("changed: %v", got)
	}
}

// TestDeclared checks that each declaration of a plugin changes the hash.
func TestDeclared(t *testing.T) {
	seen := map[string]string{}
	for what, change := range map[string]func(*spec.Quantizer, *spec.Optimizer){
		"nothing":     func(*spec.Quantizer, *spec.Optimizer) {},
		"homogeneous": func(q *spec.Quantizer, _ *spec.Optimizer) { q.Homogeneous = true },
		"searches":    func(q *spec.Quantizer, _ *spec.Optimizer) { q.SearchEvery = 3 },
		"state": func(q *spec.Quantizer, _ *spec.Optimizer) {
			q.State = []spec.Tensor{{Name: "s", Shape: []int{2}}}
		},
		"refreshes": func(_ *spec.Quantizer, o *spec.Optimizer) { o.Due = spec.Due{First: 1, Every: 10} },
		"fewer refreshes": func(_ *spec.Quantizer, o *spec.Optimizer) {
			o.Due = spec.Due{First: 1, Every: 3}
		},
		"probes": func(_ *spec.Quantizer, o *spec.Optimizer) {
			o.ProbeDue = spec.Due{First: 1, Every: 3}
		},
		"labels":   func(_ *spec.Quantizer, o *spec.Optimizer) { o.Sampled = true },
		"rounding": func(_ *spec.Quantizer, o *spec.Optimizer) { o.Rounded = spec.StoreBFloat16 },
	} {
		q, o := spec.Quantizer{}, spec.Optimizer{}
		change(&q, &o)
		p := &Programs{Weights: map[string]spec.Quantizer{"w": q},
			Tensors: []TrainedTensor{{Name: "w", Optimizer: o}}}
		hash := p.Declared()
		if other, ok := seen[hash]; ok {
			t.Errorf("%s and %s have the same hash", what, other)
		}
		seen[hash] = what
	}
}
