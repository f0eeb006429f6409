package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/study/figure"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/internal/lists"
)

// Figure is a figure of the report.
type Figure struct {
	Name    string // name of its files, without an extension
	Kind    string // as in the study file
	Title   string
	Notes   []string // sentences shown below it
	Picture figure.Picture
}

// nothingToDraw is shown in place of a figure without data.
const nothingToDraw = "No cell of this figure is done, or none has a value that can be drawn."

// Empty reports whether there is nothing to draw: no cell of the figure is done, or no value can be
// drawn on the axes.
func (f Figure) Empty() bool { return f.Picture == nil }

func (f Figure) file(ending string) string { return "figures/" + f.Name + "." + ending }

// figures draws a figure of the study file. If it would be overcrowded, it becomes several figures,
// which have the same vertical axis so that they can be compared.
func figures(
	s *study.Study, f study.Figure, results []study.Result, damaged unreadable,
) ([]*Figure, error) {
	var out []*Figure
	var charts []*figure.Chart
	low, high := math.Inf(1), math.Inf(-1)
	for _, part := range smallMultiples(s, f, results) {
		one, err := newFigure(drawing{part, s, results, damaged})
		if err != nil {
			return nil, err
		}
		if len(f.Where) > 0 && !one.Empty() {
			one.Notes = append(one.Notes, "Only "+whereText(f.Where)+".")
		}
		out = append(out, one)
		if c, ok := one.Picture.(*figure.Chart); ok {
			charts = append(charts, c)
			if l, h, ok := c.Span(); ok {
				low, high = min(low, l), max(high, h)
			}
		}
	}
	if len(charts) > 1 {
		for _, c := range charts {
			c.Y.Min, c.Y.Max = low, high
		}
	}
	return out, nil
}

// whereText names the labels to which a figure is restricted.
func whereText(where map[string][]string) string {
	return strings.Join(lists.Map(slices.Sorted(maps.Keys(where)), func(axis string) string {
		return axis + " " + strings.Join(lists.Map(where[axis], func(label string) string {
			if strings.Contains(label, ",") {
				return "“" + label + "”"
			}
			return label
		}), ", ")
	}), "; ")
}

// smallMultiples splits a figure. A heat map becomes one for each series. Curves of more series
// than there are colours become one figure for each label of the first axis of the series. Figures
// of other kinds are not split.
func smallMultiples(s *study.Study, f study.Figure, results []study.Result) []study.Figure {
	axes := 0
	switch all := combinations(s, f.Series, f.Where, results); {
	case f.Kind == study.Heatmap:
		axes = len(f.Series)
	case f.Kind == study.Curves && len(f.Series) > 1 && len(all) > figure.Colors:
		axes = 1
	}
	if axes == 0 {
		return []study.Figure{f}
	}
	var out []study.Figure
	for _, labels := range combinations(s, f.Series[:axes], f.Where, results) {
		one := f
		one.Series, one.Where = f.Series[axes:], map[string][]string{}
		maps.Copy(one.Where, f.Where)
		one.Title = cmp.Or(f.Title, defaultTitle(f)) + ": " + seriesName(f.Series[:axes], labels)
		for i, axis := range f.Series[:axes] {
			one.Where[axis] = labels[i : i+1]
		}
		out = append(out, one)
	}
	return out
}

type drawing struct {
	study.Figure
	study   *study.Study
	results []study.Result
	damaged unreadable
}

func (f drawing) group(sides ...[]string) *grouped {
	return group(f.study, f.results, f.Over, f.Where, sides...)
}

func newFigure(f drawing) (*Figure, error) {
	out := &Figure{Kind: f.Kind, Title: cmp.Or(f.Title, defaultTitle(f.Figure))}
	note := ""
	if f.Best != nil { // only the results with the chosen label are shown
		g := f.group(f.study.OtherAxes(f.Over, []string{f.Best.Axis}), nil, []string{f.Best.Axis})
		f.results = nil
		for _, labels := range g.labels[0] {
			_, reported := g.choose(f.Best, labels, nil)
			f.results = append(f.results, resultsOf(reported)...)
		}
		note = fmt.Sprintf("Each with the %s that has the best mean of %s",
			f.Best.Axis, metricPhrase(f.Best.Metric))
		for _, axis := range slices.Sorted(maps.Keys(f.Best.On)) {
			note += fmt.Sprintf(", %s %s", axis, strings.Join(f.Best.On[axis], ", "))
		}
		if f.Best.On != nil {
			note += ", which are not shown"
		}
		note += "."
	}
	picture, own, err := map[string]func(drawing) (figure.Picture, string, error){
		study.Bar: drawing.bars, study.Heatmap: drawing.heatmap, study.Scatter: drawing.scatter,
		study.Differences: drawing.differences, study.Curves: drawing.curves,
		study.Trajectories: drawing.trajectories,
	}[f.Kind](f)
	if err != nil {
		return nil, err
	}
	if !figure.Empty(picture) {
		out.Picture = picture
		out.Notes = slices.DeleteFunc([]string{own, note}, func(s string) bool { return s == "" })
	}
	return out, nil
}

func defaultTitle(f study.Figure) string {
	name := metricName(f.Metric)
	return map[string]string{
		study.Bar:          name + " by " + f.X,
		study.Heatmap:      name + " by " + f.X + " and " + f.Y,
		study.Curves:       name + " over the steps",
		study.Differences:  name + ": difference to " + f.Baseline,
		study.Scatter:      metricName(f.Y) + " against " + metricName(f.X),
		study.Trajectories: f.Kind,
	}[f.Kind]
}

func metricName(metric string) string {
	name, _, _ := strings.Cut(metrics.Label(metric), ",")
	return name
}

// metricPhrase returns the label of a metric for use in a sentence: "name (formula or unit)".
func metricPhrase(metric string) string {
	name, rest, found := strings.Cut(metrics.Label(metric), ", ")
	if found {
		name += " (" + rest + ")"
	}
	return name
}

// counts is the range of the numbers of replicates behind a figure's values.
type counts struct{ low, high int }

func (c *counts) add(n int) {
	if n > 0 && (c.low == 0 || n < c.low) {
		c.low = n
	}
	c.high = max(c.high, n)
}

func (c counts) String() string {
	if c.low < c.high {
		return fmt.Sprintf("n = %d to %d", c.low, c.high)
	}
	return fmt.Sprintf("n = %d", c.high)
}

// note describes the replicates over which values were averaged; "" if no value has several.
func (c counts) note(what string, over []string) string {
	if c.high < 2 {
		return ""
	}
	return fmt.Sprintf("%s over replicates (%s), %v.", what, join(over), c)
}

const meanSD = "Mean ± standard deviation"

func (f drawing) bars() (figure.Picture, string, error) {
	g := f.group([]string{f.X}, f.Series)
	y := figure.Axis{Label: metrics.Label(f.Metric), Log: f.LogY}
	out := &figure.Bars{X: figure.Axis{Label: f.X}, Y: y, Groups: g.single(0)}
	var n counts
	for _, series := range g.labels[1] {
		b := figure.BarSeries{Name: seriesName(f.Series, series)}
		for _, label := range g.labels[0] {
			list := g.at(label, series)
			_, x := values(list, f.Metric)
			d := study.Describe(x)
			n.add(d.N)
			bar := figure.Bar{Y: d.Mean, Minus: spread(d), Plus: spread(d), Absent: len(list) == 0}
			b.Bars = append(b.Bars, bar)
		}
		out.Series = append(out.Series, b)
	}
	return out, n.note(meanSD, f.Over), nil
}

// spread returns the standard deviation, or 0 if it is NaN.
func spread(s study.Sample) float64 {
	if math.IsNaN(s.SD) {
		return 0
	}
	return s.SD
}

func (f drawing) heatmap() (figure.Picture, string, error) {
	g := f.group([]string{f.Y}, []string{f.X})
	out := &figure.Heat{
		X: figure.Axis{Label: f.X}, Y: figure.Axis{Label: f.Y},
		Scale: metrics.Label(f.Metric), Log: f.LogY, Rows: g.single(0), Columns: g.single(1),
	}
	var n counts
	var shown []study.Sample // the means alone, since deviations are not shown
	for _, row := range g.labels[0] {
		var means []float64
		for _, column := range g.labels[1] {
			_, x := values(g.at(row, column), f.Metric)
			d := study.Describe(x)
			n.add(d.N)
			means, shown = append(means, d.Mean), append(shown, study.Sample{Mean: d.Mean})
		}
		out.Values = append(out.Values, means)
	}
	out.Format = chooseFormat(shown)
	return out, n.note("Mean", f.Over), nil
}

// scatter draws a point for each cell, or for the mean over its replicates.
func (f drawing) scatter() (figure.Picture, string, error) {
	g := f.group(f.Series, f.study.OtherAxes(f.Series, f.Over))
	out := &figure.Chart{
		X: figure.Axis{Label: metrics.Label(f.X), Log: f.LogX},
		Y: figure.Axis{Label: metrics.Label(f.Y), Log: f.LogY},
	}
	var n counts
	for _, series := range g.labels[0] {
		line := figure.Series{Name: seriesName(f.Series, series), Marks: true}
		for _, label := range g.labels[1] {
			var x, y []float64 // of replicates that have both metrics
			for _, r := range g.at(series, label) {
				a, hasX := r.result.Value(f.X)
				b, hasY := r.result.Value(f.Y)
				if hasX && hasY {
					x, y = append(x, a), append(y, b)
				}
			}
			if len(x) == 0 {
				continue
			}
			across, d := study.Describe(x), study.Describe(y)
			n.add(d.N)
			line.Points = append(line.Points, figure.Point{
				X: across.Mean, Y: d.Mean, Minus: spread(d), Plus: spread(d), Across: spread(across),
			})
		}
		out.Series = append(out.Series, line)
	}
	return out, n.note(meanSD, f.Over), nil
}

// differences draws a row for each label of the series: the paired differences between the other
// labels of axis X and the baseline, replicate by replicate.
func (f drawing) differences() (figure.Picture, string, error) {
	g := f.group(f.Series, []string{f.X})
	label := "difference of " + metrics.Label(f.Metric) + " to " + f.Baseline
	out := &figure.Differences{X: figure.Axis{Label: label}}
	out.Rows = lists.Map(g.labels[0], func(row []string) string { return seriesName(f.Series, row) })
	var n counts
	for _, label := range g.labels[1] {
		if label[0] == f.Baseline {
			continue
		}
		series := figure.DifferenceSeries{Name: label[0]}
		for _, row := range g.labels[0] {
			a, b := pairValues(g.at(row, label), g.at(row, []string{f.Baseline}), f.Metric)
			d := study.Pair(a, b, study.Level)
			n.add(d.N)
			pairs := figure.PairDifferences{Mean: d.Mean, Low: d.Low, High: d.High}
			for i := range a {
				pairs.Each = append(pairs.Each, a[i]-b[i])
			}
			series.Rows = append(series.Rows, pairs)
		}
		out.Series = append(out.Series, series)
	}
	of := ""
	if len(f.Over) > 0 {
		of = " (" + join(f.Over) + ")"
	}
	note := "Faint: each pair of replicates%s. " +
		"With bars: their mean, and its 95 %% interval of Student's t. %v."
	if n.low < 3 {
		note += " Without bars: fewer than three pairs."
	}
	return out, fmt.Sprintf(note, of, n), nil
}

// seriesName returns the labels of a series on one line. A label that is a number follows the name
// of its axis.
func seriesName(axes, labels []string) string {
	out := slices.Clone(labels)
	for i, label := range out {
		_, err := strconv.ParseFloat(label, 64)
		if err == nil && i < len(axes) && !strings.HasPrefix(label, axes[i]) {
			out[i] = axes[i] + " " + label
		}
	}
	return join(out)
}
