package scaffold

import (
	"runtime/debug"
	"testing"
)

// TestIsPublished checks which versions can be downloaded; those made in a working copy cannot.
func TestIsPublished(t *testing.T) {
	copied := []debug.BuildSetting{{Key: "vcs.revision", Value: "abcdef"}}
	const between = "v0.3.1-0.20261120101112-0123456789ab"
	for _, c := range []struct {
		path, version string
		settings      []debug.BuildSetting
		want          bool
	}{
		{Module, "v0.3.0", nil, true},
		{Module, "v0.3.0", copied, true}, // at a tag
		{Module, between, nil, true},     // installed by its version
		{Module, between, copied, false},
		{Module, "v0.3.0+dirty", copied, false},
		{Module, "(devel)", nil, false},
		{"example.com/other", "v0.3.0", nil, false},
	} {
		info := &debug.BuildInfo{Main: debug.Module{Path: c.path, Version: c.version},
			Settings: c.settings}
		if got := isPublished(info); got != c.want {
			t.Errorf("%s %s with %v: %v", c.path, c.version, c.settings, got)
		}
	}
}
