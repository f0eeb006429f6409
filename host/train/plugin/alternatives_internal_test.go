package plugin

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cage-qat/cage/sdk"
)

// TestSlowAlternatives: a plugin that does not say in time of which kind it is may be the one that was meant.
func TestSlowAlternatives(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"adagrad", "nf4"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\nsleep 60\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	f := &Finder{Dirs: []string{dir}}
	if got := f.alternatives(ended, sdk.KindQuantizer); !slices.Equal(got, []string{"adagrad", "nf4"}) {
		t.Errorf("the alternatives are %v, want both plugins", got)
	}
}

// TestAlternativesByName: a mistyped name starts nothing in the directory ByName.
func TestAlternativesByName(t *testing.T) {
	chosen, here := t.TempDir(), t.TempDir()
	ran := filepath.Join(t.TempDir(), "ran")
	for path, mark := range map[string]string{filepath.Join(chosen, "adagrad"): "chosen", filepath.Join(here, "deploy"): "here"} {
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho "+mark+" >> "+ran+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f := &Finder{Dirs: []string{chosen, here}, ByName: here}
	if got := f.alternatives(t.Context(), sdk.KindQuantizer); !slices.Equal(got, []string{"deploy"}) {
		t.Errorf("the alternatives are %v, want only the one whose kind is not known", got)
	}
	if text, err := os.ReadFile(ran); err != nil || string(text) != "chosen\n" {
		t.Errorf("these ran: %q, %v", text, err)
	}
}
