package records

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/vfs"
)

// metered measures the heap while a table is written.
type metered struct{ most uint64 }

func (m *metered) Write(p []byte) (int, error) {
	m.most = max(m.most, heap())
	return len(p), nil
}

// heap is the size of what is in use.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// exported makes a run with these records.
func exported(t *testing.T, records string) (dir string) {
	dir = filepath.Join(t.TempDir(), "a")
	if err := vfs.At(dir).MkdirAll(); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"run.toml": "seed = 1\n", "metrics.jsonl": records} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestExportMemory: a table is written with one record in memory.
func TestExportMemory(t *testing.T) {
	testlevel.Long(t, "measures the heap often")
	var weights, records strings.Builder
	for i := range 300 {
		fmt.Fprintf(&weights, `,"block.%d.w":{"flip_rate":0.5}`, i)
	}
	for step := range 400 {
		fmt.Fprintf(&records, `{"step":%d,"weights":{%s}}`+"\n", step, weights.String()[1:])
	}
	dir := exported(t, records.String())
	records.Reset()
	before := heap()
	var names Columns
	list, err := Open(io.Discard, []string{dir}, names.Add)
	if err != nil {
		t.Fatal(err)
	}
	var m metered
	if err := names.Write(&m, list); err != nil {
		t.Fatal(err)
	}
	if m.most > before+2<<20 {
		t.Errorf("%d bytes are needed", m.most-before)
	}
}

// TestExportOfAGrowingRun: a table has the records that were there when its columns were chosen.
func TestExportOfAGrowingRun(t *testing.T) {
	const first = `{"step":1,"loss":2,"lr":0,"lambda":0,"tokens":0,"seconds":0}` + "\n"
	dir := exported(t, first)
	export := func(meanwhile string) (string, error) {
		var names Columns
		list, err := Open(io.Discard, []string{dir}, names.Add)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "metrics.jsonl"), []byte(meanwhile), 0o644); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		err = names.Write(&out, list)
		return out.String(), err
	}
	const want = "run,step,loss,lr,lambda,tokens,seconds\na,1,2,0,0,0,0\n"
	if got, err := export(first + `{"step":2,"val_loss":3}` + "\n"); err != nil || got != want {
		t.Errorf("a record that was added: %q, %v", got, err)
	}
	if _, err := export(`{"step":1,"val_loss":3}` + "\n"); err != nil {
		t.Error(err) // its columns are those of the records before
	}
	if err := os.WriteFile(filepath.Join(dir, "metrics.jsonl"), []byte(first), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := export(`{"step":1,"val_ppl":3}` + "\n"); err == nil || !strings.Contains(err.Error(), "try again") {
		t.Errorf("a record that was replaced: %v", err)
	}
}

// TestRunNames: a run is called by the end of its path that no other one has.
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
