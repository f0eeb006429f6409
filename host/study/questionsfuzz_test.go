package study

import (
	"os"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/deploy/tasks"
	"github.com/cage-qat/cage/internal/vfs"
)

// FuzzRead checks that any results.json gives a number for each metric, or an error with its name.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"results": {"piqa": {"acc,none": 0.5, "acc_norm,none": "NaN", "acc_stderr,none": "N/A"}}}`))
	f.Add([]byte(`{"results": {"piqa": {"acc,none": {}}}}`))
	f.Add([]byte(`{"results": null}`))
	piqa, err := tasks.Open("piqa")
	if err != nil {
		f.Fatal(err)
	}
	e := &taskQuestions{List: []*tasks.Task{piqa}}
	out := vfs.At(f.TempDir())
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(out.Join("results.json").Name, content, 0o600); err != nil {
			t.Fatal(err)
		}
		found, err := e.Read(out)
		if err != nil {
			if !strings.Contains(err.Error(), "results.json") {
				t.Fatalf("no file in %v", err)
			}
			return
		}
		for _, m := range e.Metrics() {
			if _, ok := found[m.Name]; !ok {
				t.Fatalf("no %s in %v", m.Name, found)
			}
		}
	})
}
