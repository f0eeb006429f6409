package tile

import (
	"testing"

	"github.com/cage-qat/cage/sdk/program"
)

// Tiles compute every operation, or refuse it for a reason that is told.
func TestEveryOperationIsComputedOrRefused(t *testing.T) {
	for _, info := range program.Ops() {
		entries := 0
		for _, has := range []bool{rules[info.Op] != nil, unwritten[info.Op] != "", impossible[info.Op] != ""} {
			if has {
				entries++
			}
		}
		if entries != 1 {
			t.Errorf("%s stands in %d of the tables rules, unwritten and impossible", info.Name, entries)
		}
	}
	if len(rules)+len(unwritten)+len(impossible) != len(program.Ops()) {
		t.Error("there are entries for operations that do not exist")
	}
}
