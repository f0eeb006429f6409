package snapshot_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/study/snapshot"
)

// FuzzRead checks that any bytes give an error that names the file, or a file that survives a round
// trip.
func FuzzRead(f *testing.F) {
	for _, text := range []string{
		``, `{}`, `{"study": "s", "cells": []}`,
		`{"study": "s", "from": "s.toml", "sources": [{"date": "d", "revision": "r", "builds": null, "plugins": null}], "cells": [{"id": "a", "source": 0, "metrics": {"val_loss": "NaN"}}]}`,
		`{"study": "s", "cells": [{"id": "a", "source": 1}]}`,
		`{"study": "s", "sources": [{}], "cells": [{"id": "a"}, {"id": "a"}]}`,
		`{"study": "s"} {}`,
	} {
		f.Add([]byte(text))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(dir, "kept.json")
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
		file, err := snapshot.Read(path)
		if err != nil {
			if !strings.HasPrefix(err.Error(), path) {
				t.Errorf("the error does not begin with the file: %v", err)
			}
			return
		}
		if err := file.Write(path); err != nil {
			t.Fatal(err)
		}
		once, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if file, err = snapshot.Read(path); err != nil {
			t.Fatalf("what was written is refused: %v\n%s", err, once)
		}
		if err := file.Write(path); err != nil {
			t.Fatal(err)
		}
		if twice, _ := os.ReadFile(path); string(twice) != string(once) {
			t.Errorf("written again:\n%s\nbefore:\n%s", twice, once)
		}
	})
}
