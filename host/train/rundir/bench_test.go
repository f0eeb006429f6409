package rundir

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// BenchmarkList lists 5,000 runs of a study by their index.
func BenchmarkList(b *testing.B) {
	b.Chdir(b.TempDir())
	many(b, 5000)
	if n := len(list(b, "studies")); n != 5000 {
		b.Fatal(n)
	}
	for b.Loop() {
		if n := len(list(b, "studies")); n != 5000 {
			b.Fatal(n)
		}
	}
}

// BenchmarkListCold lists 1,000 runs without an index.
func BenchmarkListCold(b *testing.B) {
	b.Chdir(b.TempDir())
	many(b, 1000)
	for b.Loop() {
		if err := os.Remove("studies/.runs-index"); err != nil && !os.IsNotExist(err) {
			b.Fatal(err)
		}
		list(b, "studies")
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
