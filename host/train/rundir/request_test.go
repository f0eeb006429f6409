package rundir_test

import (
	"errors"
	"testing"

	"github.com/cage-qat/cage/host/train/rundir"
)

// TestRequests: only a run that is trained can be asked, and a request is taken once.
func TestRequests(t *testing.T) {
	d := rundir.At(t.TempDir())
	if err := d.Ask(rundir.Stop); !errors.Is(err, rundir.ErrNotRunning) {
		t.Errorf("a run that nobody trains: %v", err)
	}
	lock, err := d.Lock().Lock()
	if err != nil {
		t.Fatal(err)
	}
	if d.Take(rundir.Stop) {
		t.Error("there is a request before one was made")
	}
	for range 2 { // the second makes no other
		if err := d.Ask(rundir.Stop); err != nil {
			t.Fatal(err)
		}
	}
	if d.Take(rundir.Checkpoint) || !d.Take(rundir.Stop) || d.Take(rundir.Stop) {
		t.Error("the request is not taken once, or is another")
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
}
