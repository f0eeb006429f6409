package program

import "testing"

// TestEveryOperationHasAGradient checks that every operation has a gradient rule, or that its
// gradient is zero or refused.
func TestEveryOperationHasAGradient(t *testing.T) {
	for _, r := range table {
		if constant := r.Gradient == zero.text || r.Gradient == refused.text; r.Gradient == "" ||
			constant != (r.gradient.rule == nil) {
			t.Errorf("%s: the gradient is %q, with a rule: %v", r.Name, r.Gradient, r.gradient.rule != nil)
		}
	}
}
