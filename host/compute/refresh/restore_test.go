package refresh_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/refresh"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/sdk"
)

// TestRestore checks that a pending refresh of a checkpoint is installed before the update at which
// it is due. A matrix without eigenvalues is tolerated, as in a run that never stopped. A fault of
// the executor is an error, because the preconditioner would never be renewed. A record that is not
// due after the step at which it began is damaged, and refused.
func TestRestore(t *testing.T) {
	built, err := sdk.BuildOptimizer(testrun.Carrier{}, sdk.Tensor{Name: "w", Shape: []int{2}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := refresh.New(testrun.Device(t),
		[]refresh.Target{{Tensor: "w", Optimizer: built, Delay: 2}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	none := func(name string, _ []int) ([]float32, error) {
		return nil, fmt.Errorf("there is no %s", name)
	}
	for _, due := range []int{3, 4} {
		err := r.Restore(&refresh.Pending{}, []refresh.Record{{Tensor: "w", Step: 4, Due: due}}, none)
		if want := fmt.Sprintf("the checkpoint has an unexpected refresh of w, from update 4 to %d",
			due); err == nil || err.Error() != want {
			t.Errorf("due at %d: %v, want %q", due, err, want)
		}
	}
	for _, fault := range []bool{false, true} {
		var pending refresh.Pending
		record := refresh.Record{Tensor: "w", Step: 4, Due: 6, Failed: "no convergence", Fault: fault}
		if err := r.Restore(&pending, []refresh.Record{record}, none); err != nil {
			t.Fatal(err)
		}
		if again := pending.Records(); !slices.Equal(again, []refresh.Record{record}) {
			t.Errorf("the next checkpoint says %+v, want %+v", again, record)
		}
		for update, arrives := range map[int]bool{4: false, 5: false, 6: true, 7: true} {
			if pending.Arrives(update) != arrives {
				t.Errorf("before update %d a refresh arrives: %t, want %t", update, !arrives, arrives)
			}
		}
		if failed, err := r.Install(&pending, nil, 5); len(failed) > 0 || err != nil ||
			len(pending.Records()) != 1 {
			t.Errorf("before update 5: %v, %v", failed, err)
		}
		failed, err := r.Install(&pending, nil, 6)
		switch {
		case fault && (err == nil || !strings.Contains(err.Error(), "refresh of w: no convergence")):
			t.Errorf("a fault of the executor is tolerated: %v", err)
		case !fault && (err != nil || !slices.Equal(failed, []string{"w"})):
			t.Errorf("a matrix without eigenvalues: %v failed, %v", failed, err)
		}
	}
}
