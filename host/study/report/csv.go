package report

import (
	"bytes"
	"encoding/csv"
	"math"
	"strconv"
)

// CSV writes every entry of every table as a line, in full precision: the labels of
// all axes (empty where an axis is a replicate or has no part), the numbers, and the
// comparisons. Missing numbers are empty.
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
	for i := range r.Tables {
		for _, record := range r.Tables[i].records(r) {
			if err := w.Write(record); err != nil {
				return nil, err
			}
		}
	}
	w.Flush()
	return b.Bytes(), w.Error()
}

// records are the lines of a table.
func (t *Table) records(r *Report) [][]string {
	var out [][]string
	for i := range t.Rows {
		for c := range t.Columns {
			e := t.Entries[i][c]
			if e.Expected == 0 {
				continue
			}
			labels := t.labels(i, c)
			record := []string{t.Title, t.Metric}
			for _, a := range r.Axes {
				record = append(record, labels[a.Name])
			}
			mean := full(e.Mean)
			if e.N > 0 && math.IsNaN(e.Mean) {
				mean = "NaN" // a replicate is, which is not to have none
			}
			record = append(record, strconv.Itoa(e.N), strconv.Itoa(e.Expected), mean, full(e.SD), string(e.Mark))
			if d := e.Difference; d != nil {
				record = append(record, join(t.Columns[t.Baseline]), strconv.Itoa(d.N), full(d.Mean), full(d.SD), full(d.Low), full(d.High))
			} else {
				record = append(record, "", "", "", "", "", "")
			}
			out = append(out, record)
		}
	}
	return out
}

// full writes a number so that it reads back as the same, "" for none.
func full(x float64) string {
	if math.IsNaN(x) {
		return ""
	}
	return strconv.FormatFloat(x, 'g', -1, 64)
}
