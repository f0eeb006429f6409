package report

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/vfs"
)

// FuzzCurve checks that any metric of any records is a curve, or an error with file and line.
func FuzzCurve(f *testing.F) {
	f.Add([]byte(`{"step":1,"loss":2}`+"\n"+`{"step":2,"loss":"NaN"}`+"\n"+`{"st`), "loss")
	f.Add([]byte(`{"step":1,"loss":null}`+"\n"), "loss")
	f.Add([]byte(`{"loss":1}`+"\n[]\n"), "loss")
	path := filepath.Join(f.TempDir(), "metrics.jsonl")
	f.Fuzz(func(t *testing.T, data []byte, metric string) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := readCurve(vfs.At(path), metric)
		if err != nil {
			if !strings.Contains(err.Error(), path+": line ") {
				t.Fatalf("no file and line in %v", err)
			}
			return
		}
		if len(c.steps) != len(c.values) {
			t.Fatalf("%d steps with %d values", len(c.steps), len(c.values))
		}
		average([]curve{c, c})
	})
}

// FuzzProvenance checks that any provenance.json is shown as valid JSON, or gives an error with its
// path.
func FuzzProvenance(f *testing.F) {
	f.Add([]byte(`{"build":{"go":"go1.27"},"plugins":[{"path":"/a/b/c","at":"2026-11-20T10:22:12Z"}]}`))
	f.Add([]byte(`["/a/b/c /d/e:10:22:13",null,1e999]`))
	f.Add([]byte(`{"a":"b"`))
	path := filepath.Join(f.TempDir(), "provenance.json")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		text, err := readProvenance(vfs.At(path))
		if err != nil {
			if !strings.Contains(err.Error(), path) {
				t.Fatalf("no file in %v", err)
			}
			return
		}
		if !json.Valid([]byte(text)) {
			t.Fatalf("not JSON: %s", text)
		}
	})
}
