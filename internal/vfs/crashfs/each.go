package crashfs

import (
	"fmt"
	"iter"
	"testing"
)

// Each yields directories as they may be after a loss of power, seeds of them for every
// moment, and a description of each. The test fails if there are fewer than least of
// them.
func (f *FS) Each(t testing.TB, seeds uint64, least int) iter.Seq2[string, string] {
	return func(yield func(dir, what string) bool) {
		states := 0
		for m := range f.Moments() + 1 {
			for seed := range seeds {
				dir := t.TempDir()
				if err := f.Lose(m, seed, dir); err != nil {
					t.Fatal(err)
				}
				states++
				if !yield(dir, fmt.Sprintf("power lost at moment %d, seed %d", m, seed)) {
					return
				}
			}
		}
		if states < least {
			t.Errorf("only %d states were tried", states)
		}
		t.Logf("%d moments, %d states", f.Moments(), states)
	}
}
