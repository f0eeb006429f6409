package chat

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/internal/testing/crashfs"
	"github.com/cage-qat/cage/internal/testing/faultfs"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/vfs"
)

// whole checks that token files that can be opened are intact, and that preparing again makes the
// dataset want.
func whole(t *testing.T, what, out string, want map[string]string) {
	t.Helper()
	for _, name := range []string{dataset.Conversations.Train, dataset.Conversations.Val} {
		if f, err := dataset.Open(filepath.Join(out, name)); err == nil {
			if err := f.Verify(t.Context()); err != nil {
				t.Errorf("%s: a damaged file is opened: %v", what, err)
			}
			f.Close()
		}
	}
	if _, err := Prepare(t.Context(), options(t, conversations(6), out)); err != nil {
		t.Errorf("%s: cannot be prepared again: %v", what, err)
		return
	}
	if diff := cmp.Diff(want, contents(t, out)); diff != "" {
		t.Errorf("%s: the data set differs:\n%s", what, diff)
	}
}

// TestFaults checks that any failing file operation, alone or with all later ones, is reported, and
// that the next preparation makes the right dataset.
func TestFaults(t *testing.T) {
	reference := t.TempDir()
	prepare(t, options(t, conversations(6), reference))
	want := contents(t, reference)
	for files := range faultfs.Each(t, testlevel.Choose(2, 1), 20) {
		out := filepath.Join(t.TempDir(), "set")
		o := options(t, conversations(6), out)
		o.Files = files
		_, err := Prepare(t.Context(), o)
		whole(t, files.Reported(t, err), out, want)
	}
}

// TestPowerLoss checks that, whenever power is lost, no torn file opens as intact, and the next
// preparation makes the right dataset.
func TestPowerLoss(t *testing.T) {
	testlevel.Long(t, "a preparation for each moment at which power can be lost")
	root := t.TempDir()
	out := filepath.Join(root, "set")
	prepare(t, options(t, conversations(9), out))
	files, err := crashfs.New(root)
	if err != nil {
		t.Fatal(err)
	}
	o := options(t, conversations(6), out)
	o.Files = files
	prepare(t, o)
	want := contents(t, out)
	for lost, what := range files.Each(t, testlevel.Choose[uint64](2, 3), 40) {
		whole(t, what, filepath.Join(lost, "set"), want)
	}
}

// TestPrepareTwice checks that preparing a dataset twice at once is an error: files would be mixed.
func TestPrepareTwice(t *testing.T) {
	out := t.TempDir()
	lock, err := vfs.At(out).Join(dataset.LockFile).Lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Prepare(t.Context(), options(t, conversations(6), out)); err == nil ||
		!strings.Contains(err.Error(), "another process is preparing the dataset in "+out) {
		t.Errorf("beside another preparation: %v", err)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
}
