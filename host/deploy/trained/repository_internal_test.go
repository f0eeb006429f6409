package trained

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cage-qat/cage/host/model/huggingface"
)

// TestRepositoryOf checks that a checkpoint's repository is found by its place in a cache of the
// Hub or by its config.json, and that no path of the machine counts as one.
func TestRepositoryOf(t *testing.T) {
	for config, want := range map[string]string{`{}`: "",
		`{"_name_or_path": "org/model-1B"}`:   "org/model-1B",
		`{"_name_or_path": "/home/me/model"}`: "", `{"_name_or_path": "a/b/c"}`: "",
		`{"_name_or_path": "../b"}`: "", `{"_name_or_path": 1}`: "", "": ""} {
		dir := t.TempDir()
		file := filepath.Join(dir, huggingface.ConfigName)
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := repositoryOf(dir); got != want {
			t.Errorf("%s: the repository is %q, want %q", config, got, want)
		}
	}
	for dir, want := range map[string]string{
		"/c/hub/models--org--model-1B/snapshots/0ab":  "org/model-1B",
		"/c/hub/models--org--a--b/snapshots/0ab/":     "org/a--b",
		"/c/hub/models--gpt2/snapshots/0ab":           "",
		"/c/hub/models--org--model/snapshots/0ab/sub": "",
		"/c/hub/org--model":                           "",
	} {
		if got := repositoryOf(dir); got != want {
			t.Errorf("%s: the repository is %q, want %q", dir, got, want)
		}
	}
}
