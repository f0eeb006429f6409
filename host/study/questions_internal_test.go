package study

import "testing"

// TestNamesStay checks that the names of evaluations do not change. Finished evaluations are found
// by name; otherwise, all questions would be asked again.
func TestNamesStay(t *testing.T) {
	for name, want := range map[string]string{
		"piqa":            "piqa-f30cc13c9f34",
		"a/b ü, 5 shots.": "a-b-5-shots-f30cc13c9f34",
		"0123456789012345678901234567890123456789012345678901234567890123456789": "012345678901234567890123456789012345678901234567890123456789-f30cc13c9f34",
	} {
		if got := identify(name, []any{"hash", 5, true}); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
