package triton

import (
	"testing"

	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/sdk/program"
)

// TestEveryOperationIsWrittenOrRefused checks that each operation has a rule or a reason to refuse
// it.
func TestEveryOperationIsWrittenOrRefused(t *testing.T) {
	for _, info := range program.Ops() {
		if written, no := rules[info.Op] != nil, passes.UnsupportedByRows[info.Op] != ""; written == no {
			t.Errorf("%s: written %t, refused %t", info.Name, written, no)
		}
	}
	if len(rules)+len(passes.UnsupportedByRows) != len(program.Ops()) {
		t.Error("there are rules for operations that do not exist")
	}
}
