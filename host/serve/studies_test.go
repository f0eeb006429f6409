package serve_test

import (
	"os"
	"path/filepath"
	"strings"
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

// TestReportElsewhere: a report that is a link to a file elsewhere is not shown.
func TestReportElsewhere(t *testing.T) {
	root := filepath.Join(t.TempDir(), "studies")
	one := filepath.Join(root, "one")
	put(t, one, "study.toml", "")
	put(t, one, "cells", "x", "run.toml", "seed = 1\n")
	put(t, filepath.Dir(root), "secret", "a secret")
	if err := os.MkdirAll(filepath.Join(one, "report"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(filepath.Dir(root), "secret"), filepath.Join(one, "report", "index.html")); err != nil {
		t.Fatal(err)
	}
	if w := get(t, pages(root), "/report", "study", one); w.Code != 404 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
