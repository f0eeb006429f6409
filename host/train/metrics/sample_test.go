package metrics_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/internal/vfs"
)

// TestSamples: texts are read as they were written, but for bytes that are none; lines of
// later steps and a torn one are cut off.
func TestSamples(t *testing.T) {
	path := filepath.Join(t.TempDir(), "samples.jsonl")
	w, err := metrics.Resume[metrics.Sample](vfs.At(path), 0)
	if err != nil {
		t.Fatal(err)
	}
	list := []metrics.Sample{
		{Step: 5, Texts: []metrics.Text{{Prompt: "func ", Text: "main() {\n\t\"λ\" }"}, {Prompt: "a", Text: ""}}},
		{Step: 9, Texts: []metrics.Text{{Prompt: "b", Text: "x\xffy"}}},
	}
	for _, s := range list {
		if err := w.Write(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	list[1].Texts[0].Text = "x\ufffdy"
	got, err := metrics.Read[metrics.Sample](vfs.At(path))
	if diff := cmp.Diff(list, got); err != nil || diff != "" {
		t.Fatalf("read back (-want +got), %v:\n%s", err, diff)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(text, `{"step":12,"te`...), 0o644); err != nil {
		t.Fatal(err)
	}
	if w, err = metrics.Resume[metrics.Sample](vfs.At(path), 8); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err = metrics.Read[metrics.Sample](vfs.At(path))
	if diff := cmp.Diff(list[:1], got); err != nil || diff != "" {
		t.Errorf("after resuming at step 8 (-want +got), %v:\n%s", err, diff)
	}
}

func FuzzSample(f *testing.F) {
	f.Add([]byte(`{"step":1,"texts":[{"prompt":"func ","text":"main()"}]}`))
	f.Add([]byte(`{"step":-1,"texts":null}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		s, err := metrics.ParseSample(line)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "metrics: no sample: ") {
				t.Fatal(err)
			}
			return
		}
		path := vfs.At(filepath.Join(t.TempDir(), "samples.jsonl"))
		w, err := metrics.Resume[metrics.Sample](path, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(s); (err != nil) != (s.Step < 0) {
			t.Fatalf("writing step %d: %v", s.Step, err)
		}
		if err := w.Close(); err != nil || s.Step < 0 {
			return
		}
		got, err := metrics.Read[metrics.Sample](path)
		if diff := cmp.Diff([]metrics.Sample{s}, got); err != nil || diff != "" {
			t.Fatalf("read back (-want +got), %v:\n%s", err, diff)
		}
	})
}
