package repocheck

import (
	"slices"
	"strings"
	"testing"
)

// layers lists the directories of host/, highest first. A package imports packages of its own
// layer, of lower layers, of the sdk and of internal/. Tests of all import testing.
var layers = []string{"testing", "study", "deploy", "train", "model", "compute", "cage", "data"}

// TestLayers checks that no package of host/ imports one of a higher layer.
func TestLayers(t *testing.T) {
	for _, p := range load(t) {
		name, ok := strings.CutPrefix(p.PkgPath, module+"/host/")
		if !ok {
			continue
		}
		layer, _, _ := strings.Cut(name, "/")
		at := slices.Index(layers, layer)
		if at < 0 {
			t.Errorf("host/%s is in none of the layers %v", name, layers)
			continue
		}
		for path := range p.Imports {
			below, ok := strings.CutPrefix(path, module+"/host/")
			if !ok {
				continue
			}
			other, _, _ := strings.Cut(below, "/")
			if slices.Index(layers, other) < at {
				t.Errorf("host/%s imports host/%s, which is in a higher layer", name, below)
			}
		}
	}
}
