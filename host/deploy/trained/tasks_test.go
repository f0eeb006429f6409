package trained

import (
	"path/filepath"
	"testing"

	"github.com/cage-qat/cage/internal/testing/testfile"
)

// TestCheckpointName checks that the name of a checkpoint changes with its weights, its
// configuration and its end tokens.
func TestCheckpointName(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		testfile.Write(t, filepath.Join(dir, name), text)
	}
	write("config.json", "{}")
	write("model.safetensors", "weights")
	before := checkpointName(dir)
	for name, text := range map[string]string{"config.json": `{"rope_theta": 5e5}`,
		"generation_config.json": `{"eos_token_id": 2}`, "model.safetensors": "others"} {
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
