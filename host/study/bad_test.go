package study

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/testing/badfiles"
)

const leastBad = 20

// TestBadFiles checks that all problems of a study file are reported at once, each with its
// position and what would be right.
func TestBadFiles(t *testing.T) {
	badfiles.Test(t, leastBad, func(t *testing.T, c badfiles.Case) error {
		t.Chdir(t.TempDir())
		write(t, "study.toml", string(c.File("study.toml")))
		write(t, "base.toml", string(c.File("base.toml")))
		_, err := Load("study.toml")
		if _, ok := errors.AsType[*plaintoml.Error](err); err != nil && !ok {
			t.Errorf("no *plaintoml.Error in %T", err)
		}
		return err
	})
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
