package program

import "testing"

// TestEveryOperationHasAGradient checks that each gradient has a rule, is zero, or is refused.
func TestEveryOperationHasAGradient(t *testing.T) {
	for _, r := range table {
		if constant := r.Gradient == zero.text || r.Gradient == refused.text; r.Gradient == "" ||
			constant != (r.gradient.rule == nil) {
			t.Errorf("%s: the gradient is %q, with a rule: %v", r.Name, r.Gradient, r.gradient.rule != nil)
		}
	}
}
