package autodiff

import (
	"testing"

	"github.com/cage-qat/cage/sdk/program"
)

// Every operation has a rule, and its row of the operation table says which kind.
func TestEveryOperationHasARule(t *testing.T) {
	for _, info := range program.Ops() {
		r, ok := rules[info.Op]
		if !ok {
			t.Errorf("%s has no rule", info.Name)
		}
		if (r.refused != "") != (info.Gradient == "an error") || (r.adjoint == nil) != (info.Gradient == "zero" || info.Gradient == "an error") {
			t.Errorf("%s: the table says that its gradient is %q", info.Name, info.Gradient)
		}
	}
	if len(rules) != len(program.Ops()) {
		t.Error("there are rules for operations that do not exist")
	}
}
