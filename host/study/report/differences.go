package report

import (
	"fmt"
	"slices"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/study/figure"
	"github.com/cage-qat/cage/host/study/stat"
	"github.com/cage-qat/cage/host/train/metrics"
)

// differences has a row for each label of the series, and in it what the other labels of the axis X differ from the
// baseline by, replicate by replicate.
func differences(s *study.Study, f study.Figure, results []study.Result) (picture, error) {
	g, err := grouping{s, [][]string{f.Series, {f.X}}, f.Over, f.Where}.group(results)
	if err != nil {
		return picture{}, err
	}
	out := &figure.Differences{X: figure.Axis{Label: "difference of " + metrics.Label(f.Metric) + " to " + f.Baseline}}
	for _, row := range g.labels[0] {
		out.Rows = append(out.Rows, seriesName(f.Series, row))
	}
	others := slices.DeleteFunc(slices.Clone(g.labels[1]), func(label []string) bool { return label[0] == f.Baseline })
	var n counts
	for _, label := range others {
		series := figure.DifferenceSeries{Name: label[0]}
		for _, row := range g.labels[0] {
			a, b := paired(g.at(row, label), g.at(row, []string{f.Baseline}), f.Metric)
			d := stat.Pair(a, b, stat.Level)
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
	return picture{out, []string{fmt.Sprintf("Faint: each pair of replicates%s. With bars: their mean, and its 95 %% interval of Student's t. %v.", of, n)}}, nil
}
