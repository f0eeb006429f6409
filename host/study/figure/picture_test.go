package figure_test

import (
	"bytes"
	"errors"
	"fmt"
	"image/png"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/study/figure"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

var nan = math.NaN()

// bell returns a falling noisy curve with a band of ±10 %.
func bell(random *rand.Rand, name string, points int, floor float64) figure.Series {
	s := figure.Series{Name: name, Line: figure.Varied, Band: true}
	for i := 1; i <= points; i++ {
		y := floor + 3*math.Exp(-7*float64(i)/float64(points))
		s.Points = append(s.Points, figure.Point{X: float64(i), Y: y + 0.02*random.NormFloat64(),
			Minus: 0.1 * y, Plus: 0.1 * y})
	}
	return s
}

// walk returns a path in the plane that ends near zero.
func walk(random *rand.Rand, name string, x, y float64) figure.Series {
	s := figure.Series{Name: name, Line: figure.Varied, Ends: true}
	for i := range 200 {
		t := float64(i) / 30
		s.Points = append(s.Points, figure.Point{X: x*math.Exp(-t) + 0.05*random.NormFloat64(),
			Y: y*math.Exp(-t/2)*math.Cos(t) + 0.05*random.NormFloat64()})
	}
	return s
}

// scaling returns a chart of measurements, the line fitted to them, and a Pareto front.
func scaling(random *rand.Rand) *figure.Chart {
	measured := figure.Series{Name: "CAGE, 4 bits", Marks: true, Color: 1}
	fitted := figure.Series{Line: figure.Solid, Color: 1}
	front := figure.Series{Name: "Pareto front", Marks: true, Line: figure.Dashed, Color: 2}
	for _, n := range []float64{3e7, 5e7, 1e8, 2e8} {
		l := 1.7 + 400/math.Pow(n, 0.34)
		measured.Points = append(measured.Points,
			figure.Point{X: n, Y: l + 0.01*random.NormFloat64(), Minus: 0.02, Plus: 0.02})
		fitted.Points = append(fitted.Points, figure.Point{X: n, Y: l})
		front.Points = append(front.Points, figure.Point{X: n / 3, Y: l + 0.1})
	}
	return &figure.Chart{X: figure.Axis{Label: "parameters", Log: true}, Y: figure.Axis{Label: "loss"},
		Series: []figure.Series{measured, fitted, front}}
}

// row returns bars with an interval of ±spread.
func row(name string, spread float64, values ...float64) figure.BarSeries {
	s := figure.BarSeries{Name: name}
	for _, v := range values {
		s.Bars = append(s.Bars, figure.Bar{Y: v, Minus: spread, Plus: spread})
	}
	return s
}

// pictures returns pictures of each kind, with the texts that must appear in them.
func pictures() map[string]struct {
	picture figure.Picture
	want    string // texts, separated by |
} {
	random := rand.New(rand.NewPCG(3, 5))
	long := []string{"condition number 1, quite long", "condition number 10, quite long",
		"condition number 100, quite long"}
	return map[string]struct {
		picture figure.Picture
		want    string
	}{
		"curves": {&figure.Chart{X: figure.Axis{Label: "step"},
			Y: figure.Axis{Label: "validation loss", Log: true},
			Series: []figure.Series{bell(random, "CAGE", 3000, 0.3), bell(random, "QuEST", 3000, 0.5),
				bell(random, "full precision", 3000, 0.1)}},
			"step|validation loss|CAGE|QuEST|full precision|1000|2000|0.1"},
		"runs":    {&figure.Curves{Runs: compare()}, "step|QuEST W4A4|full precision|validation"},
		"scatter": {scaling(random), "parameters|loss|CAGE, 4 bits|Pareto front|1e8|2e7"},
		"trajectories": {&figure.Chart{X: figure.Axis{Label: "1st"}, Y: figure.Axis{Label: "2nd"},
			Equal: true,
			Series: []figure.Series{walk(random, "STE-SGD", 3, 1), walk(random, "STE-Adam", 2, -1),
				walk(random, "CAGE-Adam", 4, 2)}},
			"1st|2nd|STE-SGD|STE-Adam|CAGE-Adam"},
		"bars": {&figure.Bars{X: figure.Axis{Label: "κ"}, Y: figure.Axis{Label: "final loss"},
			Groups: []string{"1", "10", "100"}, Labels: "%.2f",
			Series: []figure.BarSeries{row("STE-SGD", 0.1, 1.25, 2.55, 5.05),
				row("STE-Adam", 0.1, 1.05, 2.15, nan), row("CAGE-Adam", 0.1, 0.55, 1.55, 3.05)}},
			"κ|final loss|10|100|0|STE-SGD|STE-Adam|CAGE-Adam|2.55|0.55"},
		"bars with a logarithmic axis": {&figure.Bars{X: figure.Axis{Label: "κ"},
			Y: figure.Axis{Label: "final loss", Log: true}, Groups: long,
			Series: []figure.BarSeries{row("STE-SGD", 2, 1.2, 2.5, 500),
				row("CAGE-Adam", 0.001, 0.005, 1.5, 3)}},
			"κ|final loss|STE-SGD|0.01|100|condition number 1, qu…"},
		"dots": {&figure.Bars{X: figure.Axis{Label: "bits"}, Y: figure.Axis{Label: "perplexity"},
			Groups: []string{"2", "3", "4"},
			Series: []figure.BarSeries{row("QuEST", 0.1, 20.3, 19.8, 19.1),
				row("CAGE", 0.1, 20.1, 19.6, 19.05)}},
			"bits|perplexity|QuEST|CAGE|19.0|20.0"},
		"differences": {&figure.Differences{
			X:    figure.Axis{Label: "difference of validation loss to QuEST"},
			Rows: []string{"131k · HT · bits 4", "131k · HT · bits 2", "nothing yet"},
			Series: []figure.DifferenceSeries{
				{Name: "CAGE", Rows: []figure.PairDifferences{
					{Each: []float64{-0.02, -0.01, 0.003}, Mean: -0.009, Low: -0.014, High: -0.004},
					{Each: []float64{-0.04, -0.03}, Mean: -0.035, Low: nan, High: nan},
					{Mean: nan, Low: nan, High: nan}}},
				{Name: "CAGE, coupled",
					Rows: []figure.PairDifferences{{Each: []float64{0.01, 0.02}, Mean: 0.015, Low: 0.005,
						High: 0.025}}},
			}}, "difference of validation loss to QuEST|131k · HT · bits 4|nothing yet|CAGE|CAGE, " +
			"coupled|0.00|−0.02|0.02"},
		"heat": {&figure.Heat{X: figure.Axis{Label: "λ"}, Y: figure.Axis{Label: "silence s"},
			Columns: []string{"0.5", "1", "2", "4"}, Rows: []string{"0", "0.25", "0.8"},
			Values: [][]float64{{3.21, 3.19, 3.15, 3.4}, {3.18, 3.12, 3.11, nan}, {3.2, 3.13, 3.08, 3.31}},
			Format: "%.2f", Scale: "validation loss"},
			"λ|silence s|0.5|4|0.25|0.8|validation loss|3.21|3.08|–|3.3"},
		"heat with a logarithmic scale": {&figure.Heat{Columns: []string{"a", "b"},
			Rows: []string{"c", "d"}, Values: [][]float64{{1e-4, 0.02}, {1, 300}}, Scale: "loss", Log: true},
			"a|b|c|d|loss|0.0001|0.02|300|1e−4|100"},
	}
}

func drawn(t testing.TB, format figure.Format, p figure.Picture, o figure.Options) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := figure.Draw(&b, format, p, o); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestPicturesSayWhatTheyShow(t *testing.T) {
	for name, test := range pictures() {
		got := labels(t, drawn(t, figure.SVG, test.picture, figure.Options{Title: "the title"}))
		for _, text := range append(strings.Split(test.want, "|"), "the title") {
			if got[text] == 0 {
				t.Errorf("%s: %q is missing among %v", name, text, got)
			}
		}
		if dir := os.Getenv("CAGE_SCREENSHOTS"); dir != "" { // for visual inspection
			if err := figure.Save(filepath.Join(dir, name+".svg"), test.picture,
				figure.Options{Title: name}); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestPicturesAreDeterministic(t *testing.T) {
	testlevel.Long(t, "draws many pictures")
	for name, test := range pictures() {
		for _, format := range figure.Formats {
			a, b := drawn(t, format, test.picture, figure.Options{}),
				drawn(t, format, pictures()[name].picture, figure.Options{})
			if !bytes.Equal(a, b) {
				t.Errorf("%s: two %s differ", name, format)
			}
		}
		img, err := png.Decode(
			bytes.NewReader(drawn(t, figure.PNG, test.picture, figure.Options{Width: 4, Height: 3})))
		if err != nil {
			t.Fatal(err)
		}
		if size := img.Bounds().Size(); size.X != 800 || size.Y != 600 {
			t.Errorf("%s: %v pixels, want 800 × 600", name, size)
		}
	}
}

// TestBars checks that bars of similar lengths are drawn as points on an axis without zero, and
// that a missing bar leaves a gap while an absent one does not.
func TestBars(t *testing.T) {
	bars := func(a, b float64) *figure.Bars {
		return &figure.Bars{Groups: []string{"x", "y"}, Series: []figure.BarSeries{row("", 0, a, b)}}
	}
	for _, test := range []struct {
		a, b float64
		zero bool
	}{{10, 5, true}, {10, 9, false}, {-10, -9, false}, {-1, 1, true}, {3, 3, true}, {10, nan, true}} {
		got := labels(t, drawn(t, figure.SVG, bars(test.a, test.b), figure.Options{}))
		if zero := got["0"]+got["0.0"] > 0; zero != test.zero {
			t.Errorf("%v and %v: zero on the axis is %v, want %v (%v)", test.a, test.b, zero, test.zero, got)
		}
	}
	two := func(second figure.Bar) []byte {
		return drawn(t, figure.SVG,
			&figure.Bars{Groups: []string{"x"},
				Series: []figure.BarSeries{row("", 0, 1), {Bars: []figure.Bar{second}}}}, figure.Options{})
	}
	if bytes.Equal(two(figure.Bar{Absent: true}), two(figure.Bar{Y: nan})) {
		t.Error("an absent bar leaves a gap, or a missing one none")
	}
}

func TestPicturesWithoutData(t *testing.T) {
	gone := []figure.Point{{X: nan, Y: 1}, {X: 1, Y: nan}, {X: math.Inf(1), Y: 1}}
	for name, p := range map[string]figure.Picture{
		"nothing":         &figure.Chart{},
		"no finite point": &figure.Chart{Series: []figure.Series{{Points: gone, Line: figure.Solid}}},
		"nothing positive": &figure.Chart{Y: figure.Axis{Log: true},
			Series: []figure.Series{{Points: []figure.Point{{X: 1, Y: 0}, {X: 2, Y: -1}}}}},
		"no bars":            &figure.Bars{Groups: []string{"a"}},
		"bars beyond groups": &figure.Bars{Series: []figure.BarSeries{row("a", 0, 1, 2)}},
		"a matrix of nothing": &figure.Heat{Rows: []string{"a"}, Columns: []string{"b"},
			Values: [][]float64{{nan}}},
		"no pairs": &figure.Differences{Rows: []string{"a"},
			Series: []figure.DifferenceSeries{
				{Rows: []figure.PairDifferences{{Each: []float64{nan}, Mean: nan, Low: nan, High: nan}}}}},
		"pairs beyond rows": &figure.Differences{
			Series: []figure.DifferenceSeries{
				{Rows: []figure.PairDifferences{{Each: []float64{1}, Mean: 1, Low: 0, High: 2}}}}},
		"no matrix": &figure.Heat{Rows: []string{"a"}, Columns: []string{"b"}},
	} {
		if err := figure.Draw(io.Discard, figure.PNG, p, figure.Options{}); !errors.Is(err,
			figure.ErrNoData) {
			t.Errorf("%s: %v, want ErrNoData", name, err)
		}
	}
}

// TestOddPictures checks that extreme values and texts are drawn with finite coordinates.
func TestOddPictures(t *testing.T) {
	testlevel.Long(t, "draws many pictures")
	hostile := "<b>&\"']]>\x00\x1b\n\u2028\xff" + strings.Repeat("wide ", 60)
	odd := []float64{nan, 1, math.Inf(1), math.MaxFloat64, -1e29, 5e-324, 0, 1e29, math.Inf(-1), 2}
	var points []figure.Point
	var bars []figure.Bar
	pairs := figure.DifferenceSeries{Name: hostile}
	for i, v := range odd {
		pairs.Rows = append(pairs.Rows, figure.PairDifferences{Each: odd, Mean: v, Low: odd[len(odd)-1-i],
			High: v})
		points = append(points, figure.Point{X: float64(i), Y: v, Minus: odd[len(odd)-1-i], Plus: v})
		bars = append(bars, figure.Bar{Y: v, Minus: odd[len(odd)-1-i], Plus: v})
	}
	groups := make([]string, len(odd))
	for i := range groups {
		groups[i] = hostile
	}
	for _, log := range []bool{false, true} {
		axis := figure.Axis{Label: hostile, Log: log}
		for name, p := range map[string]figure.Picture{
			"chart": &figure.Chart{X: axis, Y: axis,
				Series: []figure.Series{{Name: hostile, Points: points, Line: figure.Dotted, Band: true},
					{Points: points, Marks: true, Ends: true}}},
			"one point": &figure.Chart{X: axis, Y: axis, Equal: true,
				Series: []figure.Series{{Name: "a", Points: []figure.Point{{X: 3, Y: 3}}, Line: figure.Solid}}},
			"bars": &figure.Bars{X: axis, Y: axis, Groups: groups,
				Series: []figure.BarSeries{{Name: hostile, Bars: bars}}, Labels: "%g"},
			"differences": &figure.Differences{X: axis, Rows: groups,
				Series: []figure.DifferenceSeries{pairs, pairs}},
			"one value": &figure.Heat{X: axis, Y: axis, Columns: groups[:1], Rows: groups[:1],
				Values: [][]float64{{2}}, Log: log, Scale: hostile},
			"heat": &figure.Heat{X: axis, Y: axis, Columns: groups, Rows: groups[:1],
				Values: [][]float64{odd}, Log: log, Scale: hostile},
		} {
			svg := drawn(t, figure.SVG, p, figure.Options{Title: hostile})
			labels(t, svg) // fails if it is not well-formed
			if bytes.Contains(svg, []byte("NaN")) || bytes.Contains(svg, []byte("Inf")) {
				t.Errorf("%s (log %v): a coordinate is not finite", name, log)
			}
			drawn(t, figure.PNG, p, figure.Options{Title: hostile})
		}
	}
}

func TestLongCurvesMakeSmallPictures(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	chart := &figure.Chart{Series: []figure.Series{bell(random, "a", 200_000, 1)}}
	if svg := drawn(t, figure.SVG, chart, figure.Options{}); len(svg) > 150_000 {
		t.Errorf("%d bytes for one curve", len(svg))
	}
}

func ExampleDraw() {
	bars := &figure.Bars{
		X: figure.Axis{Label: "bits"}, Y: figure.Axis{Label: "validation loss"},
		Groups: []string{"2", "4"},
		Series: []figure.BarSeries{
			{Name: "QuEST", Bars: []figure.Bar{{Y: 3.6, Minus: 0.1, Plus: 0.1}, {Y: 2.1}}},
			{Name: "CAGE", Bars: []figure.Bar{{Y: 3.4, Minus: 0.1, Plus: 0.1}, {Y: 2.0}}},
		},
	}
	var svg bytes.Buffer
	if err := figure.Draw(&svg, figure.SVG, bars, figure.Options{}); err != nil {
		fmt.Println(err)
	}
	fmt.Println(strings.Count(svg.String(), ">QuEST</text>"))
	// Output: 1
}

// TestExtremes checks that every kind of picture can be drawn, with few tick marks, of values that
// an axis cannot distinguish and of values near the limits of float64.
func TestExtremes(t *testing.T) {
	smallest, largest := math.SmallestNonzeroFloat64, math.MaxFloat64
	for _, values := range [][]float64{
		{0.1, math.Nextafter(0.1, 1)}, {1e9, math.Nextafter(1e9, 0)}, {-0.1, math.Nextafter(-0.1, 1)},
		{1e-10, 1e-10}, {0, 0}, {smallest, smallest},
		{0, smallest}, {smallest, largest}, {-largest, largest}, {largest, largest}, {1, 1 + 1e-9},
		{1, 1 + 1e-8},
	} {
		for _, log := range []bool{false, true} {
			axis := figure.Axis{Log: log}
			var points []figure.Point
			var bars []figure.Bar
			for _, v := range values {
				points, bars = append(points, figure.Point{X: v, Y: v}), append(bars, figure.Bar{Y: v})
			}
			for name, picture := range map[string]figure.Picture{
				"chart": &figure.Chart{X: axis, Y: axis,
					Series: []figure.Series{{Points: points, Line: figure.Solid, Marks: true}}},
				"bars": &figure.Bars{Y: axis, Groups: []string{"a", "b"},
					Series: []figure.BarSeries{{Bars: bars}}},
				"heat": &figure.Heat{Columns: []string{"a", "b"}, Rows: []string{"c"},
					Values: [][]float64{values}, Log: log},
				"differences": &figure.Differences{Rows: []string{"a"},
					Series: []figure.DifferenceSeries{
						{Rows: []figure.PairDifferences{{Each: values, Mean: values[0], Low: values[0],
							High: values[1]}}}}},
			} {
				t.Run(fmt.Sprintf("%s/%v/log=%t", name, values, log), func(t *testing.T) {
					var b bytes.Buffer
					err := figure.Draw(&b, figure.SVG, picture, figure.Options{})
					if ordinary := !log && math.Abs(values[1]) < 1e10; err != nil &&
						(ordinary || !errors.Is(err, figure.ErrNoData)) || b.Len() > 100_000 {
						t.Errorf("%d bytes, %v", b.Len(), err)
					}
				})
			}
		}
	}
}

// TestAcross checks that a point with a valid interval of X has a second error bar.
func TestAcross(t *testing.T) {
	svg := func(across float64) string {
		t.Helper()
		c := &figure.Chart{Series: []figure.Series{
			{Marks: true, Points: []figure.Point{{X: 1, Y: 1, Plus: 1, Minus: 1, Across: across},
				{X: 2, Y: 2, Plus: 1, Minus: 1}}}}}
		return string(drawn(t, figure.SVG, c, figure.Options{}))
	}
	without, with := svg(0), svg(0.4)
	const thin = "stroke-width:0.9"
	if a, b := strings.Count(without, thin), strings.Count(with, thin); b != a+3 {
		t.Errorf("%d lines of error bars, with an interval of X %d, want 3 more", a, b)
	}
	if svg(math.NaN()) != without || svg(-1) != without {
		t.Error("an interval that is none is drawn")
	}
}

// TestSpan checks that a band close to zero leaves space for its curve on a logarithmic axis.
func TestSpan(t *testing.T) {
	c := &figure.Chart{Y: figure.Axis{Log: true},
		Series: []figure.Series{
			{Band: true, Points: []figure.Point{{X: 1, Y: 1, Minus: 0.9999999, Plus: 1},
				{X: 2, Y: 0.5, Minus: 2}}}}}
	if low, high, ok := c.Span(); !ok || low < 0.1 || low > 0.125 || high < 2 || high > 3 {
		t.Errorf("the axis is from %g to %g, %v", low, high, ok)
	}
	if _, _, ok := (&figure.Chart{}).Span(); ok {
		t.Error("a chart without points has a range")
	}
}
