package report

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/study/figure"
	"github.com/cage-qat/cage/host/study/report/page"
	"github.com/cage-qat/cage/host/study/stat"
)

func TestPlaceless(t *testing.T) {
	for _, test := range [][2]string{
		{"", ""},
		{"open /tmp/x/studies/q/cells/a/run.toml: no such file", "open …/run.toml: no such file"},
		{`train = "/data/go/train.tokens"`, `train = "…/train.tokens"`},
		{"a/b/c and ./d/e stay, and 3/4, and https://example.org/a/b", "a/b/c and ./d/e stay, and 3/4, and https://example.org/a/b"},
		{"/etc stays", "/etc stays"},
		{"2026-11-20T10:22:12.5+01:00 [ERROR] bad", "[ERROR] bad"},
		{"10:22:12.123 loss is not finite\n10:22:13 end", "loss is not finite\nend"},
		{"run.toml:12:5: bad", "run.toml:12:5: bad"},
		{"files [/a/b/c,/d/e/f] (/g/h)", "files […/c,…/f] (…/h)"},
	} {
		if got := placeless(test[0]); got != test[1] {
			t.Errorf("%q becomes %q, want %q", test[0], got, test[1])
		}
	}
}

func TestSpelled(t *testing.T) {
	for metric, want := range map[string]string{
		"val_loss":         "validation loss",
		"error_rel":        "quantization error (‖x − Q(x)‖² / ‖x‖²)",
		"dwell_mean":       "mean dwell time (steps)",
		"gsm8k.acc,strict": "gsm8k.acc,strict",
	} {
		if got := spelled(metric); got != want {
			t.Errorf("%s is spelled %q, want %q", metric, got, want)
		}
	}
}

func TestLatexText(t *testing.T) {
	for _, test := range [][2]string{
		{`50% of a_b & {c} #1 $2 \d ~ ^`, `50\% of a\_b \& \{c\} \#1 \$2 \textbackslash{}d \textasciitilde{} \textasciicircum{}`},
		{"λ = 2·κ ± Δ, ≤ ∞", `$\lambda$ = 2$\cdot$$\kappa$ $\pm$ $\Delta$, $\le$ $\infty$`},
		{"two\nlines\x00", "two lines"},
		{"ς ο", `$\varsigma$ ο`},
		{"‖∇f‖", `$\Vert$$\nabla$f$\Vert$`},
	} {
		if got := latexText(test[0]); got != test[1] {
			t.Errorf("%q becomes %q, want %q", test[0], got, test[1])
		}
	}
}

func TestMarkdownText(t *testing.T) {
	if got, want := markdownText("a|b *c* <d> [e](f) `g` _h_ \\ \n|"), "a\\|b \\*c\\* \\<d\\> \\[e\\](f) \\`g\\` \\_h\\_ \\\\ \\|"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestHeadings(t *testing.T) {
	got := headings([][]string{{"HT", "QuEST"}, {"HT", "CAGE"}, {"none", "QuEST"}, {"none", "CAGE"}})
	want := [][]page.Heading{
		{{Label: "HT", Columns: 2}, {Label: "none", Columns: 2}},
		{{Label: "QuEST", Columns: 1}, {Label: "CAGE", Columns: 1}, {Label: "QuEST", Columns: 1}, {Label: "CAGE", Columns: 1}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestChooseFormat(t *testing.T) {
	entry := func(mean, sd float64) Entry { return Entry{Sample: stat.Sample{N: 3, Mean: mean, SD: sd}} }
	nan := math.NaN()
	for _, test := range []struct {
		entries []Entry
		want    string
	}{
		{nil, "%.4g"},
		{[]Entry{entry(nan, nan)}, "%.4g"},
		{[]Entry{entry(3.21, 0.012), entry(3.3, 0.034)}, "%.3f"},
		{[]Entry{entry(3.21, nan)}, "%.3f"},
		{[]Entry{entry(321, 12), entry(330, nan)}, "%.0f"},
		{[]Entry{entry(20, nan), entry(24, nan)}, "%.2f"},
		{[]Entry{entry(1e-5, 1e-6)}, "%.3g"},
		{[]Entry{entry(1, nan), entry(1e7, nan)}, "%.3g"},
		{[]Entry{entry(3, 1e-9)}, "%.6f"},
	} {
		if got := chooseFormat([][]Entry{test.entries}); got != test.want {
			t.Errorf("%+v: %s, want %s", test.entries, got, test.want)
		}
	}
}

func TestNumbersForReaders(t *testing.T) {
	table := &Table{format: "%.2f", differences: "%.2f"}
	for _, test := range []struct {
		got, want string
	}{
		{table.number(-1.234), "−1.23"}, {table.number(math.NaN()), "NaN"}, {table.number(math.Inf(-1)), "−∞"},
		{table.signed(0.5), "+0.50"}, {table.signed(0), "0.00"}, {table.signed(math.Inf(1)), "+∞"},
		{table.mean(Entry{Sample: stat.Sample{N: 1, Mean: 2, SD: math.NaN()}}), "2.00"},
		{withInterval(table.signed, stat.Pair([]float64{1, 2, 3}, []float64{0, 0, 0}, 0.95)), "+2.00 [−0.48, +4.48]"},
		{withInterval(table.signed, stat.Pair([]float64{1}, []float64{3}, 0.95)), "−2.00"},
	} {
		if test.got != test.want {
			t.Errorf("%q, want %q", test.got, test.want)
		}
	}
}

// Of points on the line through (1, 2, 2), the first component is (1, 2, 2)/3 and the
// second has no variance; what is at right angles to it is found second.
func TestProject(t *testing.T) {
	line := trail{points: [][]float64{{-2, -4, -4}, {0, 0, 0}, {2, 4, 4}}}
	plane, err := project([]trail{line})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{-6, 0, 6} {
		if got := plane.paths[0][i]; math.Abs(got.X-want) > 1e-12 || math.Abs(got.Y) > 1e-12 {
			t.Errorf("point %d is at %v, want (%v, 0)", i, got, want)
		}
	}
	if math.Abs(plane.share[0]-1) > 1e-12 || math.Abs(plane.share[1]) > 1e-12 {
		t.Errorf("shares %v, want 1 and 0", plane.share)
	}

	// Two paths: deviations ±3 along x and ±1 along y around (1, 1), so that the
	// components are the axes with 9/10 and 1/10 of the variance.
	plane, err = project([]trail{{points: [][]float64{{4, 1}, {-2, 1}}}, {points: [][]float64{{1, 2}, {1, 0}}}})
	if err != nil {
		t.Fatal(err)
	}
	want := [][]figure.Point{{{X: 3}, {X: -3}}, {{Y: 1}, {Y: -1}}}
	for i, path := range plane.paths {
		for j, p := range path {
			if math.Abs(p.X-want[i][j].X) > 1e-12 || math.Abs(p.Y-want[i][j].Y) > 1e-12 {
				t.Errorf("path %d, point %d: %v, want %v", i, j, p, want[i][j])
			}
		}
	}
	if got := plane.label(0); got != "component 1 (90 % of variance)" {
		t.Error(got)
	}
	if _, err := project([]trail{line, {points: [][]float64{{1, 2}}}}); err == nil {
		t.Error("paths of 3 and 2 parameters are drawn in one plane")
	}
	for name, points := range map[string][][]float64{"one point": {{1, 2, 3}}, "one parameter": {{1}, {2}}, "no movement": {{1, 1}, {1, 1}}} {
		if plane, err := project([]trail{{points: points}}); err == nil {
			for _, p := range plane.paths[0] {
				if math.IsNaN(p.X) || math.IsNaN(p.Y) {
					t.Errorf("%s: %v", name, p)
				}
			}
		}
	}
}

func TestThinned(t *testing.T) {
	var points [][]float64
	for i := range 5000 {
		points = append(points, []float64{float64(i)})
	}
	got := thinned(points)
	if len(got) != mostSteps || got[0][0] != 0 || got[mostSteps-1][0] != 4999 {
		t.Errorf("%d points from %v to %v", len(got), got[0], got[len(got)-1])
	}
}

// A mean is taken at steps that all runs have; where one is not a number, neither is it.
func TestAverage(t *testing.T) {
	runs := []curve{
		{[]int{1, 2, 3, 5}, map[int]float64{1: 1, 2: 2, 3: math.NaN(), 5: 5}},
		{[]int{1, 3, 5}, map[int]float64{1: 3, 3: 1, 5: 5}},
	}
	got := average(runs)
	if len(got) != 3 || got[0] != (figure.Point{X: 1, Y: 2, Minus: math.Sqrt2, Plus: math.Sqrt2}) || !math.IsNaN(got[1].Y) || got[2] != (figure.Point{X: 5, Y: 5}) {
		t.Errorf("%v", got)
	}
}

// TestDifferenceFormat: no interval is written as zeros, and nothing as minus zero.
func TestDifferenceFormat(t *testing.T) {
	known := func(mean, half float64) Entry {
		return Entry{Difference: &stat.Difference{N: 3, Mean: mean, Low: mean - half, High: mean + half}}
	}
	one := func(mean float64) Entry {
		return Entry{Difference: &stat.Difference{N: 1, Mean: mean, Low: math.NaN(), High: math.NaN()}}
	}
	for _, tt := range []struct {
		format  string
		entries []Entry
		want    string // the first difference
	}{
		{"%.3f", []Entry{known(-0.5, 0.25)}, "−0.500 [−0.750, −0.250]"},
		{"%.2f", []Entry{known(0.004, 0.025)}, "+0.004 [−0.021, +0.029]"},
		{"%.3f", []Entry{known(-0.00011, 0.00023)}, "−0.00011 [−0.00034, +0.00012]"},
		{"%.2f", []Entry{known(0.0004, 0.001), known(1, 3), known(2, 3)}, "0.000 [−0.001, +0.001]"},
		{"%.2f", []Entry{one(0.0004)}, "+0.00040"},
		{"%.2f", []Entry{known(0, 0)}, "0.00 [0.00, 0.00]"},
		{"%.3g", []Entry{known(1e-7, 2e-7)}, "+1e−07 [−1e−07, +3e−07]"},
		{"%.1f %%", []Entry{known(0.25, 0.03)}, "+0.250 % [+0.220 %, +0.280 %]"},
		{"%.1f %%", []Entry{known(0, 0)}, "0.0 % [0.0 %, 0.0 %]"},
	} {
		table := Table{format: tt.format, differences: differenceFormat(tt.format, [][]Entry{tt.entries})}
		if got := withInterval(table.signed, *tt.entries[0].Difference); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.format, got, tt.want)
		}
	}
	if got := (&Table{format: "%.2f"}).number(-0.001); got != "0.00" {
		t.Errorf("−0.001 with two decimals is %s", got)
	}
}

// TestSharedProvenance: runs that were made alike show one provenance, which is on the page once.
func TestSharedProvenance(t *testing.T) {
	var list []string
	for i, run := range []Run{{Provenance: "one"}, {}, {Provenance: "two"}, {Provenance: "one"}} {
		if got, want := run.detail("id", &list).Provenance, []int{0, -1, 1, 0}[i]; got != want {
			t.Errorf("run %d has the provenance %d, want %d", i, got, want)
		}
	}
	if diff := cmp.Diff([]string{"one", "two"}, list); diff != "" {
		t.Error(diff)
	}
}
