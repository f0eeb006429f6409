package serve_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/cage-qat/cage/internal/vfs"
)

// TestQuantizedCells: models that are quantized after training are cells, too: their run is in the directory model of the cell.
func TestQuantizedCells(t *testing.T) {
	root := filepath.Join(t.TempDir(), "studies")
	one := filepath.Join(root, "one")
	put(t, one, "study.toml", "")
	put(t, one, "cells", "x", "run.toml", "seed = 1\n")
	put(t, one, "cells", "x", "summary.json", `{"completed": true}`)
	put(t, one, "cells", "y", "cell.toml", "seed = 1\n")
	put(t, one, "cells", "y", "model", "run.toml", "seed = 1\n")
	put(t, one, "cells", "y", "model", "summary.json", `{"completed": true}`)
	h := pages(root)
	body := get(t, h, "/studies").Body.String()
	if !strings.Contains(body, "2 / 2") {
		t.Errorf("%s", body)
	}
}

// TestReportElsewhere: a report that is a link to a file elsewhere is not shown, not even if the name of the directory
// of that file begins like the study's.
func TestReportElsewhere(t *testing.T) {
	root := filepath.Join(t.TempDir(), "studies")
	one := filepath.Join(root, "one")
	put(t, one, "study.toml", "")
	put(t, one, "cells", "x", "run.toml", "seed = 1\n")
	put(t, one, "another", "a report")
	put(t, filepath.Dir(root), "secret", "a secret")
	put(t, root, "one-private", "secret", "a secret")
	report := filepath.Join(one, "report", "index.html")
	if err := os.MkdirAll(filepath.Dir(report), 0o755); err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]int{"../../../secret": 404, "../../one-private/secret": 404, "/etc/passwd": 404, "../another": 200} {
		if err := os.Symlink(target, report); err != nil {
			t.Fatal(err)
		}
		if w := get(t, pages(root), "/report", "study", one); w.Code != want || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
		if err := os.Remove(report); err != nil {
			t.Fatal(err)
		}
	}
}

// discarded is an answer that nobody keeps.
type discarded struct {
	header http.Header
	code   int
	bytes  int64
}

func (d *discarded) Header() http.Header { return d.header }
func (d *discarded) WriteHeader(c int)   { d.code = c }
func (d *discarded) Write(p []byte) (int, error) {
	d.bytes += int64(len(p))
	return len(p), nil
}

// TestLongReport: a report is sent in pieces. Eight at once of 250 MB need little memory.
func TestLongReport(t *testing.T) {
	one := filepath.Join(t.TempDir(), "studies", "one")
	put(t, one, "study.toml", "")
	put(t, one, "cells", "x", "run.toml", "seed = 1\n")
	put(t, one, "report", "index.html", "")
	const size = 250 << 20
	if err := os.Truncate(filepath.Join(one, "report", "index.html"), size); err != nil {
		t.Fatal(err)
	}
	h := pages(filepath.Dir(one))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			r := httptest.NewRequest("GET", "http://localhost/report?study="+url.QueryEscape(one), nil)
			w := &discarded{header: http.Header{}}
			if h.ServeHTTP(w, r); w.code != 200 || w.bytes != size {
				t.Errorf("%d, %d bytes", w.code, w.bytes)
			}
		})
	}
	all.Wait()
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 32<<20 {
		t.Errorf("%d bytes are allocated", used)
	}
}

// TestMachines: pages say which machine works on a cell, and since when, as its lock does.
func TestMachines(t *testing.T) {
	root := filepath.Join(t.TempDir(), "studies")
	one := filepath.Join(root, "one")
	put(t, one, "study.toml", "")
	for _, id := range []string{"x", "y"} {
		put(t, one, "cells", id, "run.toml", "seed = 1\n")
		put(t, one, "cells", id, "metrics.jsonl", `{"step": 1, "loss": 2}`+"\n")
	}
	put(t, one, ".claims", "x", `{"machine": "node<3>", "process": 7, "since": "2026-11-27T08:00:00Z"}`)
	claim, err := vfs.At(one).Join(".claims", "x").Lock()
	if err != nil {
		t.Fatal(err)
	}
	training, err := vfs.At(filepath.Join(one, "cells", "x")).Join(vfs.LockFile).Lock()
	if err != nil {
		t.Fatal(err)
	}
	h := pages(root)
	for path, want := range map[string]string{"/studies": `<td class="text">1 on node&lt;3&gt;</td>`, "/": "<small>on node&lt;3&gt; since ", "/run": "</span> on node&lt;3&gt; since "} {
		if body := get(t, h, path, "run", filepath.Join(one, "cells", "x")).Body.String(); strings.Count(body, want) != 1 {
			t.Errorf("%s has no %s: %s", path, want, body)
		}
	}
	for _, lock := range []vfs.Lock{claim, training} {
		if err := lock.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
	if body := get(t, pages(root), "/studies").Body.String(); strings.Contains(body, "node") {
		t.Errorf("after its end: %s", body)
	}
}
