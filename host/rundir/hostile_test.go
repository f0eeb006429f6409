package rundir

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/metrics"
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
		l, err := List("runs")
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
