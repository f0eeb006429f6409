package serve

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/train/rundir"
)

// TestLogsInUse: the curves of runs that pages ask for are kept, though they are more than those of one page; when nobody
// asks any more they are forgotten, those first that were asked for longest ago.
func TestLogsInUse(t *testing.T) {
	now := time.Unix(1700000000, 0)
	l := newLogs()
	l.now = func() time.Time { return now }
	ask := func(from, to int) (read int) {
		for i := from; i < to; i++ {
			name := fmt.Sprint(i)
			if l.byRun[name] == nil {
				read++
			}
			l.get(name)
		}
		return read
	}
	if read := ask(0, 40); read != 40 {
		t.Errorf("%d of 40 were read", read)
	}
	now = now.Add(2 * time.Second)
	if read := ask(0, 40); read != 0 || len(l.byRun) != 40 || len(l.order) != 40 {
		t.Errorf("%d were read again; %d and %d are kept", read, len(l.byRun), len(l.order))
	}
	now = now.Add(time.Minute)
	if ask(39, 40); len(l.byRun) != maxLogs || len(l.order) != maxLogs || l.byRun["0"] != nil || l.byRun["20"] == nil {
		t.Errorf("after a minute %d are kept: %v", len(l.byRun), l.order)
	}
	if ask(100, 300); len(l.byRun) != maxInUse {
		t.Errorf("%d are kept at once", len(l.byRun))
	}
}

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
			t.Errorf("%q are called %q, want %q", c.dirs, got, c.want)
		}
	}
}
