package rundir_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/train/rundir"
)

// TestRemoveAbandoned: what a killed writer left of any file that is kept whole goes away,
// and everything else stays.
func TestRemoveAbandoned(t *testing.T) {
	dir := t.TempDir()
	kept := []string{".lock", ".metrics.jsonl1", ".notes.txt1", "tokenizer.json", "tokenizer.json1"}
	left := []string{".run.toml1", ".provenance.json2", ".summary.json3", ".tokenizer.json4", ".tokenizer_config.json5",
		".special_tokens_map.json6", ".chat_template.jinja7", ".generation_config.json8"}
	for _, name := range append(left, kept...) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("part"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := rundir.At(dir).RemoveAbandoned(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var there []string
	for _, e := range entries {
		there = append(there, e.Name())
	}
	if diff := cmp.Diff(kept, there); diff != "" {
		t.Errorf("what is left (-want +got):\n%s", diff)
	}
}
