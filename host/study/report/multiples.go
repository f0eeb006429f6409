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
)

// figures makes the figure of a study file: several where one would show too much at once.
func figures(s *study.Study, f study.Figure, results []study.Result) ([]*Figure, error) {
	var out []*Figure
	for _, part := range divided(s, f, results) {
		one, err := newFigure(s, part, results)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	sameScale(out)
	return out, nil
}

// divided makes a heat map for each series. Curves of more series than there are colours
// become small multiples, one for each label of the first axis of the series. Other kinds
// show all series in one figure.
func divided(s *study.Study, f study.Figure, results []study.Result) []study.Figure {
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
		one.Series, one.Where = f.Series[axes:], maps.Clone(f.Where)
		if one.Where == nil {
			one.Where = map[string][]string{}
		}
		one.Title = cmp.Or(f.Title, defaultTitle(f)) + ": " + seriesName(f.Series[:axes], labels)
		for i, axis := range f.Series[:axes] {
			one.Where[axis] = labels[i : i+1]
		}
		out = append(out, one)
	}
	return out
}

// sameScale gives small multiples one vertical axis, so that they can be compared.
func sameScale(list []*Figure) {
	var charts []*figure.Chart
	low, high := math.Inf(1), math.Inf(-1)
	for _, f := range list {
		c, ok := f.Picture.(*figure.Chart)
		if !ok {
			continue
		}
		charts = append(charts, c)
		if l, h, ok := c.Span(); ok {
			low, high = min(low, l), max(high, h)
		}
	}
	if len(charts) < 2 || !(low < high) {
		return
	}
	for _, c := range charts {
		c.Y.Min, c.Y.Max = low, high
	}
}

// seriesName joins labels to one line. A number is preceded by the name of its axis.
func seriesName(axes, labels []string) string {
	out := slices.Clone(labels)
	for i, label := range out {
		if _, err := strconv.ParseFloat(label, 64); err == nil && i < len(axes) && !strings.HasPrefix(label, axes[i]) {
			out[i] = axes[i] + " " + label
		}
	}
	return join(out)
}

// equalDigits is the format in which all numbers have as many decimals, four digits of the
// largest at least; or four digits each, where the smallest would lose its own.
func equalDigits(rows [][]float64) string {
	low, high := math.Inf(1), 0.0
	for _, v := range slices.Concat(rows...) {
		if a := math.Abs(v); a > 0 && !math.IsInf(a, 0) {
			low, high = min(low, a), max(high, a)
		}
	}
	if high == 0 {
		return "%g"
	}
	decimals := 3 - int(math.Floor(math.Log10(high)))
	if decimals < 0 || decimals > 6 || low < high/100 {
		return "%#.4g"
	}
	return fmt.Sprintf("%%.%df", decimals)
}
