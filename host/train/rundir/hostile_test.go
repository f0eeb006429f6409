package rundir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/train/metrics"
)

// TestHostileFiles checks that hostile files in a run directory neither block the list nor use much
// memory.
func TestHostileFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	fake(t, "runs/a", 4, 7)
	if err := syscall.Mkfifo(At("runs/a").Lock().Name, 0o644); err != nil {
		t.Fatal(err)
	}
	// Sparse files that are larger than any that cage writes.
	long := map[string]int64{"config": maxConfig + 1, "summary": 5 << 20, "records": 65 << 20}
	for name, size := range long {
		fake(t, "runs/"+name, 4, 7)
		d := At("runs/" + name)
		if err := metrics.WriteSummary(d.Summary(), metrics.Summary{}); err != nil {
			t.Fatal(err)
		}
		path := map[string]string{"config": d.Config().Name, "summary": d.Summary().Name,
			"records": d.Metrics().Name}[name]
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
	}
	listed := make(chan []*Run)
	go func() {
		l, err := new(Lister).List(t.Context(), "runs")
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
			file := map[string]string{"runs/config": ConfigFile, "runs/summary": SummaryFile,
				"runs/records": MetricsFile}[r.Dir]
			if r.State != Unreadable || !strings.Contains(r.Err, file) || !strings.Contains(r.Err, "bytes") {
				t.Errorf("%s: %s %s", r.Dir, r.State, r.Err)
			}
		}
	case <-time.After(time.Minute):
		t.Fatal("the list waits")
	}
}

// TestHostileConfigs checks that a run.toml that would take much memory or time is refused early.
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
		"named":  {named.String(), "names of all keys are too long together"},
	} {
		dir := "runs/" + name
		write(t, At(dir).Config().Name, c.text)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r, err := Open(dir)
		runtime.ReadMemStats(&after)
		if err != nil || r.State != Unreadable || !strings.Contains(r.Err, c.says) ||
			!strings.Contains(r.Err, ConfigFile) || len(r.Err) > 1000 {
			t.Errorf("%s: %v, %s", name, err, r.Err)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 128<<20 {
			t.Errorf("%s: %d bytes are allocated", name, used)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := new(Lister).List(ctx, "runs"); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody waits for the list: %v", err)
	}
}

// FuzzCondition checks that the error for an invalid condition quotes it, and that exactly one of a
// condition and its opposite holds for values other than NaN.
func FuzzCondition(f *testing.F) {
	for _, seed := range []string{"quantizer.bits=4", "val_loss<3", "run~demo", `name = "a\nb"`,
		"steps!=20", "x>=NaN", "=", "a~=b", "loss<=1e999"} {
		f.Add(seed, "4", 2.5)
	}
	opposite := map[string]string{"=": "!=", "<": ">=", ">": "<="}
	f.Fuzz(func(t *testing.T, text, value string, x float64) {
		c, err := ParseCondition(text)
		if err != nil {
			if !strings.Contains(err.Error(), strconv.Quote(text)) {
				t.Fatalf("no condition in %v", err)
			}
			return
		}
		r := &Run{Dir: "runs/a", State: Done, config: []Entry{{"k", strconv.Quote(value)}},
			results: []Result{{"x", x}}}
		for _, name := range []string{c.Name, "k", "x", dirName} {
			c := c
			c.Name = name
			other, ok := opposite[c.Op]
			have, found := r.Lookup(name)
			if !ok || !found || isNaN(have) || isNaN(c.Value) {
				c.Holds(r)
				continue
			}
			if not := (Condition{name, other, c.Value}); c.Holds(r) == not.Holds(r) {
				t.Fatalf("%+v and %+v are both %v of %q", c, not, c.Holds(r), have)
			}
		}
		_ = CheckName([]*Run{r}, c.Name)
	})
}

func isNaN(text string) bool {
	x, err := strconv.ParseFloat(text, 64)
	return err == nil && x != x
}

// FuzzOpen checks that a run with any files can be opened, that all its entries can be looked up,
// and that an unreadable run has an error.
func FuzzOpen(f *testing.F) {
	f.Add([]byte(base), []byte(`{"completed":true,"val_loss":2.5}`), []byte(""))
	f.Add([]byte(base+"\n[[quantizer.overrides]]\nmatch='a'\nplugin='b'\n\"odd key\"=[1,{a=2}]"),
		[]byte(`{"completed":false}`), []byte(`{"step":3,"loss":"NaN"}`+"\n{"))
	f.Add([]byte("a = 1979-05-27T07:32:00Z\nb = nan\nc = []"), []byte(``), []byte("null\n"))
	dir := f.TempDir()
	at := At(dir)
	f.Fuzz(func(t *testing.T, config, summary, records []byte) {
		for path, content := range map[string][]byte{at.Config().Name: config, at.Summary().Name: summary,
			at.Metrics().Name: records} {
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if (r.State == Unreadable) != (r.Err != "") || r.Err != "" && !strings.Contains(r.Err, dir) {
			t.Fatalf("%s: %q", r.State, r.Err)
		}
		for _, e := range r.Config() {
			if _, ok := r.Lookup(e.Key); !ok && r.State != Unreadable {
				t.Fatalf("nothing under %q of %v", e.Key, r.Config())
			}
		}
		for _, e := range r.Results() {
			if _, ok := r.Lookup(e.Name); !ok {
				t.Fatalf("nothing under %q", e.Name)
			}
		}
	})
}
