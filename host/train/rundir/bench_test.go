package rundir

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkList lists runs of a study, as a command does that lists them once.
func BenchmarkList(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.Chdir(b.TempDir())
			many(b, n)
			for b.Loop() {
				if found := len(list(b, "studies")); found != n {
					b.Fatal(found)
				}
			}
		})
	}
}

// BenchmarkLister lists 10,000 runs again, as a page does.
func BenchmarkLister(b *testing.B) {
	b.Chdir(b.TempDir())
	many(b, 10000)
	var l Lister
	if _, err := l.List(b.Context(), "studies"); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := l.List(b.Context(), "studies"); err != nil {
			b.Fatal(err)
		}
	}
}

// many copies a run, with other numbers in it.
func many(b *testing.B, n int) {
	fake(b, "one", 2, 0)
	text := content(b, "one/run.toml")
	summary := content(b, "one/summary.json")
	for i := range n {
		dir := fmt.Sprintf("studies/s%d/cells/c%d", i%5, i)
		write(b, At(dir).Config().Name, strings.Replace(text, "seed = 0", fmt.Sprintf("seed = %d", i), 1))
		write(b, At(dir).Summary().Name, strings.Replace(summary, `"val_loss": 2`, fmt.Sprintf(`"val_loss": %d`, i), 1))
		write(b, At(dir).Metrics().Name, "")
	}
}
