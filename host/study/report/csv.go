package report

import (
	"bytes"
	"encoding/csv"
	"math"
	"strconv"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/train/metrics"
)

// CSV returns every entry of every table as a line, in full precision: the labels of all
// axes (empty for axes of replicates and axes that are not in the table; a label that was chosen too), the numbers,
// and the comparisons. Missing numbers are empty.
func (r *Report) CSV() ([]byte, error) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	head := []string{"table", "metric"}
	for _, a := range r.Axes {
		head = append(head, a.Name)
	}
	head = append(head, "n", "expected", "mean", "sd", "mark", "baseline", "difference_n", "difference", "difference_sd", "difference_low", "difference_high")
	if err := w.Write(head); err != nil {
		return nil, err
	}
	for i, t := range r.Results().Tables {
		for _, e := range t.Entries {
			if err := w.Write(e.record(r.Axes, &r.Tables[i])); err != nil {
				return nil, err
			}
		}
	}
	w.Flush()
	return b.Bytes(), w.Error()
}

// record is the line of an entry.
func (e EntryResults) record(axes []study.Axis, t *Table) []string {
	record := []string{t.Title, t.Metric}
	for _, a := range axes {
		label := e.Labels[a.Name]
		if t.best != nil && t.best.Axis == a.Name && e.Choice != nil {
			label = e.Choice.Label
		}
		record = append(record, label)
	}
	record = append(record, strconv.Itoa(e.N), strconv.Itoa(e.Expected), meanOf(e.Mean), full(e.SD), string(e.Mark))
	if d := e.Difference; d != nil {
		return append(record, join(t.Columns[t.Baseline]), strconv.Itoa(d.N), meanOf(&d.Mean), full(d.SD), full(d.Low), full(d.High))
	}
	return append(record, "", "", "", "", "", "")
}

// meanOf writes the mean of some replicates: NaN where one of them is, which is not to have none.
func meanOf(x *metrics.Number) string {
	if x != nil && math.IsNaN(float64(*x)) {
		return "NaN"
	}
	return full(x)
}

// full writes a number so that it reads back as the same, "" for none.
func full(x *metrics.Number) string {
	if x == nil || math.IsNaN(float64(*x)) {
		return ""
	}
	return strconv.FormatFloat(float64(*x), 'g', -1, 64)
}
