package query

import (
	"os"
	"path/filepath"
	"testing"
)

// TestCheckpointName: a checkpoint is another one when its weights change, or what computes with them, or what ends its texts.
func TestCheckpointName(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("config.json", "{}")
	write("model.safetensors", "weights")
	before := checkpointName(dir)
	for name, text := range map[string]string{"config.json": `{"rope_theta": 5e5}`, "generation_config.json": `{"eos_token_id": 2}`, "model.safetensors": "others"} {
		if checkpointName(dir) != before {
			t.Fatal("the name changes by itself")
		}
		write(name, text)
		if now := checkpointName(dir); now == before {
			t.Errorf("%s changes, and the name stays %s", name, now)
		} else {
			before = now
		}
	}
}
