package serve

import (
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/train/rundir"
)

// TestLegendNames: names in a legend lack the directory of all.
func TestLegendNames(t *testing.T) {
	for _, c := range []struct{ dirs, want []string }{
		{nil, []string{}},
		{[]string{"runs/a", "runs/b"}, []string{"a", "b"}},
		{[]string{"/tmp/studies/x/cells/a-0", "/tmp/studies/x/cells/a-1"}, []string{"a-0", "a-1"}},
		{[]string{"studies/x/cells/a", "studies/xy/cells/a"}, []string{"x/cells/a", "xy/cells/a"}},
		{[]string{"runs/a", "runs/a/b", "runs/ab"}, []string{"a", "a/b", "ab"}},
		{[]string{"a", "runs/b"}, []string{"a", "runs/b"}},
		{[]string{"/a", "/b/c"}, []string{"a", "b/c"}},
		{[]string{"/a", "b"}, []string{"/a", "b"}},
	} {
		var runs []*rundir.Run
		for _, dir := range c.dirs {
			runs = append(runs, &rundir.Run{Dir: dir})
		}
		if got := legendNames(runs); !slices.Equal(got, c.want) {
			t.Errorf("%q have the names %q, want %q", c.dirs, got, c.want)
		}
	}
}
