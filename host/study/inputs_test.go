package study_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

const replaceable = `
[base]
model.init = "runs/a"
data = {train = "t.tokens", validation = "v.tokens"}
train = {steps = 1, batch = 2}
schedule = {rate = 3e-3}
optimizer = {plugin = "adamw"}
[study]
name = "q"
[[study.axes]]
name = "method"
values = [
  {label = "run"},
  {label = "checkpoint", set = {model.init = "hub"}},
  {label = "distilled", set = {train.distillation = {teacher = "runs/b"}}},
  {label = "GPTQ", set = {quantizer = {plugin = "quest", bits = 4}}, quantize = {method = "gptq", of = "init", data = "c.tokens"}},
]
`

// TestReplacedInputs checks that cells are stale if the model that they start from, their teacher
// or their calibration texts have been replaced since, and only then.
func TestReplacedInputs(t *testing.T) {
	testlevel.Long(t, "makes a data set")
	texts, other := testrun.Dataset(t)
	t.Chdir(t.TempDir())
	put := func(dir, file, text string) {
		t.Helper()
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, file), text)
	}
	cfg := testrun.Parse(t, strings.Split(strings.Replace(quantizing, "[base]", "", 1), "[study]")[0])
	for _, dir := range []string{"runs/a", "runs/b", "hub"} {
		put(dir, "run.toml", string(cfg.Encode()))
	}
	write(t, "q.toml", replaceable)
	s := load(t, "q.toml")
	copyTo := func(from string) error { // c.tokens
		content, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile("c.tokens", content, 0o644)
		}
		return err
	}
	if err := copyTo(texts); err != nil {
		t.Fatal(err)
	}
	file, err := dataset.Open("c.tokens")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	put("runs/a", "provenance.json", `{"run": "A"}`)
	put("runs/a/checkpoints", "step-00000006.safetensors", "")
	put("runs/b", "provenance.json", `{"run": "B"}`)
	put("hub", "model.safetensors", "1")
	const one = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b" // SHA-256 of "1"
	const initial = `"initial": {"run": "A", "step": 6}`
	for i, text := range []string{initial,
		`"initial": {"files": [{"file": "model.safetensors", "sha256": "` + one + `"}]}`,
		initial + `, "teacher": {"run": "B"}`,
		initial + `, "posttrained": {"calibration": {"sha256": "` + file.SHA256() + `"}}`,
	} {
		trained(t, s.Cells[i].Dir)
		put(s.Cells[i].Run, "provenance.json", "{"+text+"}")
		write(t, filepath.Join(s.Cells[i].Run, "summary.json"), `{"completed": true, "val_loss": 1}`)
	}
	later, earlier := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	const cells = "run checkpoint distilled GPTQ"
	for _, tt := range []struct {
		name, stale string
		change      func() error
	}{
		{"nothing", "", func() error { return nil }},
		{"new times", "", func() error { return os.Chtimes("hub/model.safetensors", later, later) }},
		{"another checkpoint", "checkpoint", func() error {
			write(t, "hub/model.safetensors", "2")
			return os.Chtimes("hub/model.safetensors", earlier, earlier)
		}},
		{"another teacher", "checkpoint distilled", func() error {
			return os.WriteFile("runs/b/provenance.json", []byte(`{"run": "C"}`), 0o644)
		}},
		{"other texts", "checkpoint distilled GPTQ", func() error { return copyTo(other) }},
		{"a longer training", cells, func() error {
			return os.WriteFile("runs/a/checkpoints/step-00000009.safetensors", nil, 0o644)
		}},
		{"another run", cells, func() error {
			return os.WriteFile("runs/a/provenance.json", []byte(`{"run": "D"}`), 0o644)
		}},
		{"no model", "checkpoint distilled GPTQ", func() error { return os.RemoveAll("runs/a") }},
	} {
		if err := tt.change(); err != nil {
			t.Fatal(err)
		}
		list := results(t, s)
		err := s.FindStale(t.Context(), list,
			func(_ context.Context, list []*config.Config) []config.Finding {
				return make([]config.Finding, len(list))
			})
		var stale []string
		for _, r := range list {
			if r.State == study.Stale {
				stale = append(stale, r.Cell.Labels["method"])
			}
		}
		if got := strings.Join(stale, " "); got != tt.stale || err != nil {
			t.Errorf("%s: stale are %q, want %q (%v)", tt.name, got, tt.stale, err)
		}
	}
}
