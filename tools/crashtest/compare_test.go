package main

import (
	"slices"
	"testing"
)

// TestOlderCheckpointsOfOtherSteps checks that if a training was told to stop, older checkpoints
// may have other steps, but not the newest one, and none may be missing or left over.
func TestOlderCheckpointsOfOtherSteps(t *testing.T) {
	whole := []string{"run/6.safetensors", "run/8.safetensors", "run/summary.json"}
	for _, test := range []struct{ got, missing, excess []string }{
		{[]string{"run/6.safetensors", "run/8.safetensors", "run/summary.json"}, nil, nil},
		{[]string{"run/7.safetensors", "run/8.safetensors", "run/summary.json"}, nil, nil},
		{[]string{"run/8.safetensors", "run/summary.json"}, []string{"run/6.safetensors"}, nil},
		{[]string{"run/6.safetensors", "run/7.safetensors", "run/summary.json"},
			[]string{"run/8.safetensors"}, []string{"run/7.safetensors"}},
		{[]string{"run/5.safetensors", "run/7.safetensors", "run/8.safetensors", "run/summary.json"}, nil,
			[]string{"run/7.safetensors"}},
		{[]string{"run/6.safetensors", "run/8.safetensors", "run/other.json"},
			[]string{"run/summary.json"}, []string{"run/other.json"}},
		{[]string{"other/7.safetensors", "other/8.safetensors", "run/8.safetensors", "run/summary.json"},
			[]string{"run/6.safetensors"}, []string{"other/7.safetensors", "other/8.safetensors"}},
	} {
		a, b := withoutPairs(whole, test.got, olderCheckpoint)
		missing := slices.DeleteFunc(a, func(n string) bool { return slices.Contains(test.got, n) })
		excess := slices.DeleteFunc(b, func(n string) bool { return slices.Contains(whole, n) })
		if !slices.Equal(missing, test.missing) || !slices.Equal(excess, test.excess) {
			t.Errorf("with %v there is %v missing and %v left over", test.got, missing, excess)
		}
	}
}
