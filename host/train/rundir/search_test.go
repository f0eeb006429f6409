package rundir

import (
	"slices"
	"testing"
)

// TestRunNames checks that a run is named by the shortest end of its path that is unique.
func TestRunNames(t *testing.T) {
	t.Chdir("/tmp")
	for _, c := range []struct{ dirs, want []string }{
		{[]string{"runs/a", "runs/b/"}, []string{"a", "b"}},
		{[]string{"x/run", "../x/run", "y"}, []string{"tmp/x/run", "x/run", "y"}},
		{[]string{"/a/x/run", "/b/x/run", "/b/y/run"}, []string{"a/x/run", "b/x/run", "y/run"}},
		{[]string{".", ".."}, []string{"tmp", ""}},
		{[]string{"a", "a"}, []string{"a", "a"}},
	} {
		if got := Names(c.dirs); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.dirs, got, c.want)
		}
	}
}
