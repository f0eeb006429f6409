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
