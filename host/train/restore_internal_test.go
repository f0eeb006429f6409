package train

import (
	"maps"
	"testing"

	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/step"
)

// TestFailuresOfOneTensor: a checkpoint holds how often the refreshes of a tensor have failed in a row, also when it is the
// only one. Otherwise a run that is resumed again and again would never end with the error about it.
func TestFailuresOfOneTensor(t *testing.T) {
	for _, want := range []map[string]int{nil, {"layers.1.mlp.down": 3}, {"embedding": 1, "layers.1.mlp.down": 2}} {
		r := &run{state: &step.State{}}
		r.state.Pending.RestoreFailures(want)
		saved := checkpoint.State{Meta: checkpoint.Meta{}}
		if err := r.saveRefreshes(&saved); err != nil {
			t.Fatal(err)
		}
		var got map[string]int
		if err := saved.Meta.GetIf(failuresKey, &got); err != nil || !maps.Equal(got, want) {
			t.Errorf("saved are %v, %v, want %v", got, err, want)
		}
		if _, some := saved.Meta[failuresKey]; some != (len(want) > 0) {
			t.Errorf("%v: the entry is there: %v", want, some)
		}
	}
}
