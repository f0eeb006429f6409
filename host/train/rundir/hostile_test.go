package rundir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/train/metrics"
)

// TestHostileFiles: files of a stranger in a run directory neither keep the list waiting nor take all memory.
func TestHostileFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	fake(t, "runs/a", 4, 7)
	if err := syscall.Mkfifo(At("runs/a").Lock().Name, 0o644); err != nil {
		t.Fatal(err)
	}
	// Files without content that are larger than any that cage writes.
	long := map[string]int64{"config": longestConfig + 1, "summary": 5 << 20, "records": 65 << 20}
	for name, size := range long {
		fake(t, "runs/"+name, 4, 7)
		d := At("runs/" + name)
		if err := metrics.WriteSummary(d.Summary(), metrics.Summary{}); err != nil {
			t.Fatal(err)
		}
		path := map[string]string{"config": d.Config().Name, "summary": d.Summary().Name, "records": d.Metrics().Name}[name]
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
	}
	listed := make(chan []*Run)
	go func() {
		l, err := List(t.Context(), "runs")
		if err != nil {
			t.Error(err)
		}
		listed <- l
	}()
	select {
	case l := <-listed:
		if l[0].State != Interrupted {
			t.Errorf("with a pipe for a lock: %s %s", l[0].State, l[0].Err)
		}
		for _, r := range l[1:] {
			file := map[string]string{"runs/config": ConfigFile, "runs/summary": SummaryFile, "runs/records": MetricsFile}[r.Dir]
			if r.State != Unreadable || !strings.Contains(r.Err, file) || !strings.Contains(r.Err, "bytes") {
				t.Errorf("%s: %s %s", r.Dir, r.State, r.Err)
			}
		}
	case <-time.After(time.Minute):
		t.Fatal("the list waits")
	}
}

// TestHostileConfigs: a run.toml that would take all memory or all time is refused at a glance.
func TestHostileConfigs(t *testing.T) {
	t.Chdir(t.TempDir())
	var many, named strings.Builder
	for i := range 30_000 {
		fmt.Fprintf(&many, "k%d = %d\n", i, i)
	}
	named.WriteString("[" + strings.Repeat("a", 900_000) + "]\n")
	for i := range 4_900 {
		fmt.Fprintf(&named, "k%d = %d\n", i, i)
	}
	for name, c := range map[string]struct{ text, says string }{
		"keys":   {many.String(), "more than 5000 keys or tables"},
		"tables": {strings.Repeat("[[a]]\n", 30_000), "more than 5000 keys or tables"},
		"deep":   {"[" + strings.Repeat("a.", 200_000) + "a]\nx = 1\n", "nested too deep"},
		"named":  {named.String(), "names of the keys are too long"},
	} {
		dir := "runs/" + name
		write(t, At(dir).Config().Name, c.text)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r, err := Open(dir)
		runtime.ReadMemStats(&after)
		if err != nil || r.State != Unreadable || !strings.Contains(r.Err, c.says) || !strings.Contains(r.Err, ConfigFile) || len(r.Err) > 1000 {
			t.Errorf("%s: %v, %s", name, err, r.Err)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 128<<20 {
			t.Errorf("%s: %d bytes are allocated", name, used)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := List(ctx, "runs"); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody waits for the list: %v", err)
	}
}
