package reference

import (
	"testing"

	"github.com/cage-qat/cage/sdk/program"
)

func TestEveryOperationIsExecuted(t *testing.T) {
	for _, info := range program.Ops() {
		floats, ints := info.Op.Scalar()
		eigen := info.Op == program.OpEighValues || info.Op == program.OpEighVectors
		if scalar := floats != nil || ints != nil; !eigen && scalar == (operations[info.Op] != nil) {
			t.Errorf("%s must be a function of numbers or be executed here", info.Name)
		}
	}
}
