package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/study/figure"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/safetext"
	"github.com/cage-qat/cage/internal/vfs"
)

func TestPlaceless(t *testing.T) {
	for _, test := range [][2]string{
		{"", ""},
		{"open /tmp/x/studies/q/cells/a/run.toml: no such file", "open …/run.toml: no such file"},
		{`train = "/data/go/train.tokens"`, `train = "…/train.tokens"`},
		{"a/b/c and ./d/e stay, and 3/4, and https://example.org/a/b",
			"a/b/c and ./d/e stay, and 3/4, and https://example.org/a/b"},
		{"/etc stays", "/etc stays"},
		{"2026-11-20T10:22:12.5+01:00 [ERROR] bad", "[ERROR] bad"},
		{"10:22:12.123 loss is not finite\n10:22:13 end", "loss is not finite\nend"},
		{"run.toml:12:5: bad", "run.toml:12:5: bad"},
		{"files [/a/b/c,/d/e/f] (/g/h)", "files […/c,…/f] (…/h)"},
	} {
		if got := anonymize(test[0]); got != test[1] {
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
		if got := metricPhrase(metric); got != want {
			t.Errorf("%s is spelled %q, want %q", metric, got, want)
		}
	}
}

func TestLatexText(t *testing.T) {
	for _, test := range [][2]string{
		{`50% of a_b & {c} #1 $2 \d ~ ^`,
			`50\% of a\_b \& \{c\} \#1 \$2 \textbackslash{}d \textasciitilde{} \textasciicircum{}`},
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
	if got, want := safetext.Markdown(
		"a|b *c* <d> [e](f) `g` _h_ \\ \n|"),
		"a\\|b \\*c\\* \\<d\\> \\[e\\](f) \\`g\\` \\_h\\_ \\\\ \\|"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestChooseFormat(t *testing.T) {
	type samples = []study.Sample
	sample := func(mean, sd float64) study.Sample { return study.Sample{N: 3, Mean: mean, SD: sd} }
	nan := math.NaN()
	for _, test := range []struct {
		samples samples
		want    string
	}{
		{nil, "%.4g"},
		{samples{sample(nan, nan)}, "%.4g"},
		{samples{sample(3.21, 0.012), sample(3.3, 0.034)}, "%.3f"},
		{samples{sample(3.21, nan)}, "%.3f"},
		{samples{sample(321, 12), sample(330, nan)}, "%.0f"},
		{samples{sample(20, nan), sample(24, nan)}, "%.2f"},
		{samples{sample(1e-5, 1e-6)}, "%.3g"},
		{samples{sample(1, nan), sample(1e7, nan)}, "%.3g"},
		{samples{sample(3, 1e-9)}, "%.6f"},
	} {
		if got := chooseFormat(test.samples); got != test.want {
			t.Errorf("%+v: %s, want %s", test.samples, got, test.want)
		}
	}
}

func TestNumbersForReaders(t *testing.T) {
	table := &Table{Table: study.Table{Format: "%.2f"}, differences: "%.2f"}
	for _, test := range []struct {
		got, want string
	}{
		{formatNumber("%.2f", -1.234), "−1.23"}, {formatNumber("%.2f", math.NaN()), "NaN"},
		{formatNumber("%.2f", math.Inf(-1)), "−∞"},
		{table.signed(0.5), "+0.50"}, {table.signed(0), "0.00"}, {table.signed(math.Inf(1)), "+∞"},
		{table.MeanText(Entry{Sample: study.Sample{N: 1, Mean: 2, SD: math.NaN()}}), "2.00"},
		{intervalText(table.signed, study.Pair([]float64{1, 2, 3}, []float64{0, 0, 0}, 0.95)),
			"+2.00 [−0.48, +4.48]"},
		{intervalText(table.signed, study.Pair([]float64{1}, []float64{3}, 0.95)), "−2.00"},
	} {
		if test.got != test.want {
			t.Errorf("%q, want %q", test.got, test.want)
		}
	}
}

// TestProject projects points on the line through (1, 2, 2): the first principal component is (1,
// 2, 2)/3, and the second has no variance.
func TestProject(t *testing.T) {
	line := [][]float64{{-2, -4, -4}, {0, 0, 0}, {2, 4, 4}}
	paths, share, err := project([][][]float64{line})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{-6, 0, 6} {
		if got := paths[0][i]; math.Abs(got.X-want) > 1e-12 || math.Abs(got.Y) > 1e-12 {
			t.Errorf("point %d is at %v, want (%v, 0)", i, got, want)
		}
	}
	if math.Abs(share[0]-1) > 1e-12 || math.Abs(share[1]) > 1e-12 {
		t.Errorf("shares %v, want 1 and 0", share)
	}

	// Two paths: deviations ±3 along x and ±1 along y around (1, 1), so that the
	// components are the axes with 9/10 and 1/10 of the variance.
	paths, share, err = project([][][]float64{{{4, 1}, {-2, 1}}, {{1, 2}, {1, 0}}})
	if err != nil {
		t.Fatal(err)
	}
	want := [][]figure.Point{{{X: 3}, {X: -3}}, {{Y: 1}, {Y: -1}}}
	for i, path := range paths {
		for j, p := range path {
			if math.Abs(p.X-want[i][j].X) > 1e-12 || math.Abs(p.Y-want[i][j].Y) > 1e-12 {
				t.Errorf("path %d, point %d: %v, want %v", i, j, p, want[i][j])
			}
		}
	}
	if math.Abs(share[0]-0.9) > 1e-12 {
		t.Error(share)
	}
	if _, _, err := project([][][]float64{line, {{1, 2}}}); err == nil {
		t.Error("paths of 3 and 2 parameters are drawn in one plane")
	}
	for name, points := range map[string][][]float64{"one point": {{1, 2, 3}},
		"one parameter": {{1}, {2}}, "no movement": {{1, 1}, {1, 1}}} {
		if paths, _, err := project([][][]float64{points}); err == nil {
			for _, p := range paths[0] {
				if math.IsNaN(p.X) || math.IsNaN(p.Y) {
					t.Errorf("%s: %v", name, p)
				}
			}
		}
	}
}

// TestThinned checks that a long path is thinned and keeps both ends.
func TestThinned(t *testing.T) {
	var text strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&text, "{\"step\":%d,\"x\":[%d]}\n", i, i)
	}
	path := vfs.At(t.TempDir()).Join("trajectory.jsonl")
	if err := atomicfile.WriteBytes(path, []byte(text.String())); err != nil {
		t.Fatal(err)
	}
	got, err := readTrajectory(path)
	if err != nil || len(got) != maxSteps || got[0][0] != 0 || got[maxSteps-1][0] != 4999 {
		t.Errorf("%d points, %v", len(got), err)
	}
}

// TestAverage checks that means are taken at steps that all runs have, and that NaN is kept.
func TestAverage(t *testing.T) {
	runs := []curve{
		{[]int{1, 2, 3, 5}, map[int]float64{1: 1, 2: 2, 3: math.NaN(), 5: 5}},
		{[]int{1, 3, 5}, map[int]float64{1: 3, 3: 1, 5: 5}},
	}
	got := average(runs)
	if len(got) != 3 || got[0] != (figure.Point{X: 1, Y: 2, Minus: math.Sqrt2, Plus: math.Sqrt2}) ||
		!math.IsNaN(got[1].Y) || got[2] != (figure.Point{X: 5, Y: 5}) {
		t.Errorf("%v", got)
	}
}

// TestDifferenceFormat checks that no interval is written as zeros, and no zero as minus zero.
func TestDifferenceFormat(t *testing.T) {
	known := func(mean, half float64) Entry {
		return Entry{Difference: &study.Difference{N: 3, Mean: mean, Low: mean - half, High: mean + half}}
	}
	one := func(mean float64) Entry {
		return Entry{Difference: &study.Difference{N: 1, Mean: mean, Low: math.NaN(), High: math.NaN()}}
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
		table := Table{Table: study.Table{Format: tt.format},
			differences: differenceFormat(tt.format, tt.entries)}
		if got := intervalText(table.signed, *tt.entries[0].Difference); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.format, got, tt.want)
		}
	}
	if got := formatNumber("%.2f", -0.001); got != "0.00" {
		t.Errorf("−0.001 with two decimals is %s", got)
	}
}

// TestPaired checks that replicates are paired by their labels, even if some are missing.
func TestPaired(t *testing.T) {
	list := func(values map[string]float64, keys ...string) (out []replicate) {
		for _, k := range keys {
			r := replicate{key: k}
			if v, ok := values[k]; ok {
				r.result = study.Result{Summary: map[string]float64{"val_loss": v}}
			}
			out = append(out, r)
		}
		return out
	}
	a := list(map[string]float64{"1": 11, "2": 12}, "0", "1", "2")
	b := list(map[string]float64{"0": 20, "2": 22}, "2", "1", "0")
	if x, y := pairValues(a, b, "val_loss"); !slices.Equal(x, []float64{12}) ||
		!slices.Equal(y, []float64{22}) {
		t.Errorf("%v and %v, want 12 and 22", x, y)
	}
}

// TestDivided checks that curves of more series than there are colours become small multiples, one
// for each label of the first axis.
func TestDivided(t *testing.T) {
	s := &study.Study{Axes: []study.Axis{{Name: "bits", Labels: []string{"2", "4"}}, {Name: "method"}}}
	var results []study.Result
	add := func(methods int) {
		for _, bits := range s.Axes[0].Labels {
			label := fmt.Sprintf("m%d", methods)
			s.Axes[1].Labels = append(s.Axes[1].Labels, label)
			results = append(results,
				study.Result{Cell: study.Cell{Labels: map[string]string{"bits": bits, "method": label}}})
		}
	}
	for methods := range 3 {
		add(methods)
	}
	f := study.Figure{Kind: study.Curves, Title: "Loss", Series: []string{"bits", "method"}}
	if got := smallMultiples(s, f, results); len(got) != 1 || got[0].Title != "Loss" {
		t.Errorf("six series are divided: %+v", got)
	}
	add(3)
	got := smallMultiples(s, f, results)
	if len(got) != 2 || got[0].Title != "Loss: bits 2" || got[1].Title != "Loss: bits 4" ||
		len(got[1].Series) != 1 || got[1].Series[0] != "method" || got[1].Where["bits"][0] != "4" {
		t.Errorf("eight series become %+v", got)
	}
	if f.Where != nil {
		t.Error("the figure of the study file has changed")
	}
	f.Series = []string{"method"}
	if got := smallMultiples(s, f, results); len(got) != 1 {
		t.Errorf("series of one axis are divided: %+v", got)
	}
}

func TestSeriesName(t *testing.T) {
	for _, c := range []struct {
		axes, labels []string
		want         string
	}{
		{[]string{"bits", "method"}, []string{"4", "QuEST"}, "bits 4 · QuEST"},
		{[]string{"λ"}, []string{"0.5"}, "λ 0.5"},
		{[]string{"method"}, []string{"CAGE, λ = 2"}, "CAGE, λ = 2"},
		{nil, nil, ""},
	} {
		if got := seriesName(c.axes, c.labels); got != c.want {
			t.Errorf("%v of %v: %q, want %q", c.labels, c.axes, got, c.want)
		}
	}
}

// TestItemsText checks that p is written only where there is a test.
func TestItemsText(t *testing.T) {
	table := &Table{differences: "%.2f"}
	for p, want := range map[float64]string{0.5: "items [−0.10, +0.20], p = 0.5",
		math.Inf(1): "items [−0.10, +0.20]"} {
		if math.IsInf(p, 1) {
			p = math.NaN()
		}
		if got := table.itemsText(study.ItemDifference{Low: -0.1, High: 0.2, P: p}); got != want {
			t.Errorf("%v: %s, want %s", p, got, want)
		}
	}
}
