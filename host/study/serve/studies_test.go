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

// TestStudies: a study shows how many of its cells are done, and its report in a sandbox.
func TestStudies(t *testing.T) {
	root := filepath.Join(t.TempDir(), "studies")
	one := filepath.Join(root, "one")
	put(t, one, "study.toml", "")
	for _, cell := range []string{"x", "y", "z"} {
		put(t, one, "cells", cell, "run.toml", "seed = 1\n")
	}
	put(t, one, "cells", "x", "summary.json", `{"completed": true}`)
	put(t, root, "none", "cells", "x", "run.toml", "seed = 1\n")
	h := pages(root)
	body := get(t, h, "/studies").Body.String()
	for _, want := range []string{`">` + one + `</a>`, "1 / 3"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page of studies lacks %q:\n%s", want, body)
		}
	}
	if strings.Contains(body, "none") {
		t.Error("runs below a directory cells are taken for a study")
	}
	if w := get(t, h, "/report", "study", one); w.Code != 404 {
		t.Errorf("there is no report: %d", w.Code)
	}
	put(t, one, "report", "index.html", hostile)
	w := get(t, h, "/report", "study", one)
	if policy := w.Header().Get("Content-Security-Policy"); w.Code != 200 || w.Body.String() != hostile || !strings.HasPrefix(policy, "sandbox allow-scripts; default-src 'none';") {
		t.Errorf("the report: %d, %q, %s", w.Code, policy, w.Body)
	}
	if opener := w.Header().Get("Cross-Origin-Opener-Policy"); opener != "" {
		t.Errorf("the report is in a sandbox and has an opener policy, %q: browsers may refuse it", opener)
	}
	for _, study := range []string{"", root, filepath.Join(root, "none"), one + "/", one + "/../one", "/"} {
		if w := get(t, h, "/report", "study", study); w.Code != 404 {
			t.Errorf("the report of %q: %d", study, w.Code)
		}
	}
}
