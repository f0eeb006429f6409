package study

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestPaperStudies: the studies that ship load, have the cells that their comments
// promise, and every small variant leaves out nothing that a report would miss.
func TestPaperStudies(t *testing.T) {
	want := map[string]int{
		"toy": 16, "quadratic": 180,
		"main": 6*3*2*2*3 - 2*2*2*2*3 + 6, "main-small": 2*3*2*2 + 2,
		"effect-small": 3*5 + 2*5 + 1,
		"ablation":     7*7 + 1, "ablation-small": 3*4 + 1,
		"forms": 3 * 2 * 3 * 3, "optimizers": 8, "optimizers-small": 16,
		"lotion": 3, "lotion-small": 9, "schedule-small": 2, "scaling-small": 3 * 2 * 5,
	}
	files, err := filepath.Glob("../../examples/paper/*.toml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".toml")
		if name == "small" || name == "llama" {
			continue // bases
		}
		s, err := Load(file)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if len(s.Cells) != want[name] {
			t.Errorf("%s has %d cells, want %d", name, len(s.Cells), want[name])
		}
		if s.Name != name || s.Out != "studies/"+name {
			t.Errorf("%s is named %s, in %s", name, s.Name, s.Out)
		}
		delete(want, name)
	}
	for name := range want {
		t.Errorf("there is no examples/paper/%s.toml", name)
	}
}
