package study

import "testing"

// TestNamesStay: evaluations that are done are found by these names. With other ones
// everything would be asked again.
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
