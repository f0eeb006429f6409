package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/schema"
)

// addAlso adds the means of the metrics of the overview.
func (t *Table) addAlso(results []study.Result, groups [][][]replicate) {
	byID := map[string]study.Result{}
	for _, r := range results {
		byID[r.Cell.ID] = r
	}
	for i, row := range groups {
		for c, list := range row {
			for _, metric := range t.Also {
				_, x := values(list, metric)
				if slices.Contains(study.CostMetrics(), metric) {
					x = nil
					for _, r := range list {
						if v, ok := r.result.Cell.Cost(byID, metric); ok {
							x = append(x, v)
						}
					}
				}
				t.Entries[i][c].Also = append(t.Entries[i][c].Also, study.Describe(x))
			}
		}
	}
}

// place is the row and column of an entry.
type place struct{ row, column int }

// compared returns the entries in groups that are compared with each other: those that differ only
// in axes of the baseline or, without one, those of a row. titles are the labels that they share.
func (t *Table) compared() (titles []string, groups [][]place) {
	for c := range t.ColumnLabels {
		for i := range t.RowLabels {
			if t.Entries[i][c].Expected == 0 {
				continue
			}
			shared, _ := t.split(place{i, c})
			k := slices.Index(titles, shared)
			if k < 0 {
				k, titles, groups = len(titles), append(titles, shared), append(groups, nil)
			}
			groups[k] = append(groups[k], place{i, c})
		}
	}
	return titles, groups
}

// split returns the labels that an entry shares with those it is compared with, and its own.
func (t *Table) split(p place) (shared, own string) {
	var both [2][]string
	labels := t.labels(p.row, p.column)
	for _, axis := range slices.Concat(t.Columns, t.Rows) {
		if t.Baseline[axis] != "" || len(t.Baseline) == 0 && slices.Contains(t.Columns, axis) {
			both[1] = append(both[1], labels[axis])
		} else {
			both[0] = append(both[0], axis+" "+labels[axis])
		}
	}
	return strings.Join(both[0], ", "), join(both[1])
}

// overview is a table with a line for each entry, and all of its metrics.
func (t *Table) overview() grid {
	labels := slices.Concat(t.Columns, t.Rows)
	g := grid{Title: "Overview: " + t.Title, Head: slices.Clone(labels), Texts: len(labels)}
	if t.Best != nil {
		g.Head, g.Texts = append(g.Head, t.Best.Axis), g.Texts+1
	}
	g.Head = append(g.Head, metrics.Label(t.Metric))
	formats := make([]string, len(t.Also))
	for k, metric := range t.Also {
		g.Head = append(g.Head, strings.Replace(metrics.Label(metric), "bytes", "GB", 1))
		all := slices.Concat(t.Entries...)
		formats[k] = chooseFormat(lists.Map(all, func(e Entry) study.Sample { return t.also(e, k) }))
	}
	_, groups := t.compared()
	for _, p := range slices.Concat(groups...) {
		e := t.Entries[p.row][p.column]
		row := labelCells(t.axes, labels, slices.Concat(t.ColumnLabels[p.column], t.RowLabels[p.row]))
		if t.Best != nil {
			row = append(row, cell{Text: e.ChoiceText(), Head: true})
		}
		row = append(row, sampleCell(e.Sample, t.Format))
		for k := range t.Also {
			row = append(row, sampleCell(t.also(e, k), formats[k]))
		}
		g.Rows = append(g.Rows, row)
	}
	if t.Conclusion != "" {
		g.Notes = append(g.Notes, t.Conclusion)
	}
	if slices.ContainsFunc(t.Also, metrics.Timed) {
		g.Notes = append(g.Notes, "Costs are of making a model, with those that it is made from, without "+
			"the search for settings; they differ from run to run.")
	}
	return g
}

// also returns metric k of the overview, memory in GB.
func (t *Table) also(e Entry, k int) study.Sample {
	x := e.Also[k]
	if strings.HasSuffix(t.Also[k], "bytes") {
		x.Mean, x.SD = x.Mean/1e9, x.SD/1e9
	}
	return x
}

func sampleCell(x study.Sample, format string) cell {
	if x.N == 0 {
		return cell{Text: absent}
	}
	return cell{Text: sampleText(x, format), Key: sortKey(x.Mean)}
}

// conclude writes the conclusion: for each group of entries, which is the cheapest one whose paired
// difference to the best has an interval that includes zero.
func (t *Table) conclude(s *study.Study, groups [][][]replicate) {
	titles, compared := t.compared()
	var parts []string
	for k, group := range compared {
		part := t.cheapest(s, groups, group)
		if titles[k] != "" {
			part = "with " + titles[k] + ", " + part
		}
		parts = append(parts, part)
	}
	text := strings.Join(parts, "; ") + "."
	t.Conclusion = strings.ToUpper(text[:1]) + text[1:]
}

// cheapest concludes for one group.
func (t *Table) cheapest(s *study.Study, groups [][][]replicate, group []place) string {
	entry := func(p place) Entry { return t.Entries[p.row][p.column] }
	of := func(p place) []replicate { return groups[p.row][p.column] }
	name := func(p place) string { _, own := t.split(p); return own }
	unknown := func(why string, args ...any) string {
		return "it cannot be told which is the cheapest within an interval of the best: " +
			fmt.Sprintf(why, args...)
	}
	best := study.Pick(t.Better, lists.Map(group, func(p place) float64 { return entry(p).Mean }))
	if best < 0 {
		return unknown("no cell is done")
	}
	top := group[best]
	if n := entry(top).N; n < 3 {
		return unknown("that needs three replicates, and the best so far, %s, has %d", name(top), n)
	}
	cost := slices.Index(t.Also, t.Cost)
	price := func(p place) float64 { return entry(p).Also[cost].Mean } // NaN: not known
	chosen, interval, open := top, "", []string(nil)
	for _, p := range group {
		if p == top {
			continue
		}
		a, b := pairValues(of(p), of(top), t.Metric)
		d := study.Pair(a, b, study.Level)
		if d.N >= 3 && entry(p).SD == 0 && entry(top).SD == 0 { // neither depends on the seed
			if items := pairItems(s, of(p), of(top), t.Metric); items != nil {
				d.Low, d.High = items.Low, items.High
			}
		}
		switch {
		case d.Clear() && study.Better(t.Better, 0, d.Mean), // worse,
			d.N > 0 && d.Mean-d.Mean != 0: // or it diverged
		case d.Clear(), !d.HasInterval(), math.IsNaN(price(p)):
			open = append(open, name(p))
		case !(price(chosen) <= price(p)):
			chosen, interval = p, intervalText(t.signed, d)
		}
	}
	if math.IsNaN(price(top)) {
		return unknown("the cost of the best, %s, is not known", name(top))
	}
	describe := func(p place) string {
		return fmt.Sprintf("%s (%s, %s %s)", name(p), formatNumber(t.Format, entry(p).Mean),
			formatNumber("%.4g", price(p)), metrics.Label(t.Cost))
	}
	text := "the cheapest within an interval of the best is the best itself, " + describe(top)
	if chosen != top {
		text = fmt.Sprintf("the cheapest within an interval of the best, %s, is %s, with a difference of %s",
			describe(top), describe(chosen), interval)
	}
	if len(open) > 0 {
		text += ", as far as can be told without " + schema.Quoted(open)
	}
	return text
}
