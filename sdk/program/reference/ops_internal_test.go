package reference

import (
	"testing"

	"github.com/cage-qat/cage/sdk/program"
)

func TestEveryOperationIsExecuted(t *testing.T) {
	for _, info := range program.Ops() {
		if operations[info.Op] == nil {
			t.Errorf("the oracle does not execute %s", info.Name)
		}
	}
	if len(operations) != len(program.Ops()) {
		t.Error("the oracle executes operations that do not exist")
	}
}
