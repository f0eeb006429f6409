package train

import (
	"errors"
	"testing"

	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/provenance"
)

// TestComparedMeta: two states differ where one of their entries does that follow from the
// steps done.
func TestComparedMeta(t *testing.T) {
	state := func(failures int) checkpoint.State {
		s := checkpoint.State{Meta: checkpoint.Meta{}}
		if err := errors.Join(s.Meta.Set("progress", provenance.Progress{Step: 3}), s.Meta.Set(failuresKey, map[string]int{"head": failures})); err != nil {
			t.Fatal(err)
		}
		return s
	}
	for failures, want := range map[int]int{1: 0, 2: 1} {
		list, err := compareStates(state(1), state(failures))
		if err != nil || len(list) != want || want > 0 && list[0].Name != failuresKey {
			t.Errorf("1 and %d failures: %v, %v", failures, list, err)
		}
	}
}
