package assembly

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"

	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/plugin"
)

func TestDump(t *testing.T) {
	finder, err := plugin.NewFinder()
	if err != nil {
		t.Fatal(err)
	}
	f, _ := os.Open("/work/wt/memory-cache/all.jsonl")
	out, _ := os.Create("/work/wt/memory-cache/models.jsonl")
	defer out.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct{ Set []string }
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		cfg, err := config.Load("testdata/memory/base.toml", e.Set)
		if err != nil {
			t.Fatal(e.Set, err)
		}
		m, err := Model(cfg)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Collect(t.Context(), Request{Config: cfg, Model: m, Batch: ReplicaBatch(cfg), Finder: finder})
		if err != nil {
			t.Fatal(e.Set, err)
		}
		sizes, err := memoryModel(cfg, m, p)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := json.Marshal(map[string]any{"set": e.Set, "model": sizes})
		out.Write(append(text, '\n'))
	}
}
