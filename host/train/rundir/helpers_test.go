package rundir

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
)

const base = `
model = {layers = 2, width = 32, heads = 2, context = 16}
data = {train = "train.tokens", validation = "val.tokens"}
train = {steps = 20, batch = 4}
schedule = {rate = 3e-3}
quantizer = {plugin = "quest", bits = 4}
`

// fake writes a run directory: finished, with a loss, or with a number of steps.
func fake(t testing.TB, dir string, loss float64, steps int, sets ...string) {
	t.Helper()
	cfg, err := config.Parse("run.toml", []byte(base), append(sets, fmt.Sprintf("train.out=%q", dir)))
	if err != nil {
		t.Fatal(err)
	}
	write(t, At(dir).Config().Name, string(cfg.Encode()))
	if steps > 0 {
		write(t, At(dir).Metrics().Name, fmt.Sprintf("{\"step\":%d,\"loss\":%g}\n", steps, loss))
		return
	}
	s := metrics.Summary{Name: filepath.Base(dir), Completed: true, Steps: 20,
		ValLoss: metrics.Some(loss)}
	summarize(t, dir, s)
}

func summarize(t testing.TB, dir string, s metrics.Summary) {
	t.Helper()
	if err := metrics.WriteSummary(At(dir).Summary(), s); err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func list(t testing.TB, roots ...string) []*Run {
	t.Helper()
	l, err := new(Lister).List(t.Context(), roots...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// some writes a few runs to a new directory, and makes it the working directory.
func some(t testing.TB) {
	t.Helper()
	t.Chdir(t.TempDir())
	fake(t, "runs/a", 3, 0, "quantizer.bits=2", "seed=1")
	fake(t, "runs/b", 2.5, 0, "quantizer.bits=3", "seed=2", "data.seed=2")
	fake(t, "runs/deep/er/c", 2, 0, "seed=10", `method.form="off"`)
	fake(t, "runs/d", 4.5, 7, "quantizer={}", `quantizer.weights={plugin="absmax", bits=4}`)
	fake(t, "runs/e", math.NaN(), 0, `quantizer={}`, `quantizer.weights={plugin="absmax", bits=4}`,
		`quantizer.activations={plugin="absmax", bits=8}`)
	write(t, "runs/broken/run.toml", "seed = \n")
	write(t, "runs/nothing/notes.txt", "no run")
	write(t, "runs/a/checkpoints/run.toml", "no run, because it is inside of one")
}

func dirs(l []*Run) string {
	var names []string
	for _, r := range l {
		names = append(names, filepath.Base(r.Dir))
	}
	return strings.Join(names, " ")
}

// BenchmarkList lists the runs of a study once, as a command does.
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

// many writes n runs with different seeds and losses.
func many(b *testing.B, n int) {
	fake(b, "one", 2, 0)
	text := content(b, "one/run.toml")
	summary := content(b, "one/summary.json")
	for i := range n {
		dir := fmt.Sprintf("studies/s%d/cells/c%d", i%5, i)
		write(b, At(dir).Config().Name, strings.Replace(text, "seed = 0", fmt.Sprintf("seed = %d", i), 1))
		write(b, At(dir).Summary().Name,
			strings.Replace(summary, `"val_loss": 2`, fmt.Sprintf(`"val_loss": %d`, i), 1))
		write(b, At(dir).Metrics().Name, "")
	}
}
