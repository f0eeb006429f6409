package report

import (
	"slices"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/train/metrics"
)

// Results holds the numbers of a report, for JSON.
type Results struct {
	Study  string         `json:"study"`
	Cells  int            `json:"cells"`
	States map[string]int `json:"states"` // number of cells in each state
	Tables []TableResults `json:"tables"`
	// Damages lists the runs that are omitted because one of their files cannot be read.
	Damages []Damage `json:"unreadable,omitempty"`
	// Stale lists the runs that are omitted because a plugin or the data has changed since.
	Stale []Damage `json:"stale,omitempty"`
}

// TableResults holds the numbers of a table.
type TableResults struct {
	Title    string            `json:"title"`
	Metric   string            `json:"metric"`
	Better   string            `json:"better"`
	Over     []string          `json:"over"`
	Baseline map[string]string `json:"baseline,omitempty"`
	Best     *study.Best       `json:"best,omitempty"`
	Level    float64           `json:"level"` // confidence level of intervals
	Entries  []EntryResults    `json:"entries"`
}

// EntryResults holds the numbers of an entry. Unknown numbers are omitted.
type EntryResults struct {
	Labels     map[string]string  `json:"labels"`
	N          int                `json:"n"`
	Expected   int                `json:"expected"`
	Mean       *metrics.Number    `json:"mean,omitempty"`
	SD         *metrics.Number    `json:"sd,omitempty"`
	Mark       Mark               `json:"mark,omitempty"`
	Choice     *Choice            `json:"choice,omitempty"`
	Difference *DifferenceResults `json:"difference,omitempty"`
}

// DifferenceResults holds the numbers of a paired difference from the baseline.
type DifferenceResults struct {
	N    int             `json:"n"`
	Mean metrics.Number  `json:"mean"`
	SD   *metrics.Number `json:"sd,omitempty"`
	Low  *metrics.Number `json:"low,omitempty"`
	High *metrics.Number `json:"high,omitempty"`
	Holm *metrics.Number `json:"holm,omitempty"` // as in [Entry]
}

// Results collects the numbers of all tables.
func (r *Report) Results() Results {
	out := Results{
		Study: r.Name, Cells: r.Cells, States: r.States, Tables: []TableResults{},
		Damages: r.Damages, Stale: r.Stale,
	}
	for k := range r.Tables {
		t := &r.Tables[k]
		table := TableResults{
			Title: t.Title, Metric: t.Metric, Better: t.Better, Over: t.Over,
			Baseline: t.Baseline, Best: t.Best,
			Level: study.Level, Entries: []EntryResults{},
		}
		for i, row := range t.Entries {
			for c, e := range row {
				if e.Expected == 0 {
					continue
				}
				entry := EntryResults{
					Labels: t.labels(i, c), N: e.N, Expected: e.Expected, Mark: e.Mark, Choice: e.Choice,
				}
				if e.N > 0 {
					entry.Mean = metrics.Some(e.Mean)
				}
				if e.N > 1 {
					entry.SD = metrics.Some(e.SD)
				}
				if d := e.Difference; d != nil {
					entry.Difference = &DifferenceResults{N: d.N, Mean: metrics.Number(d.Mean)}
					if to := entry.Difference; d.N > 1 {
						to.SD, to.Low, to.High = metrics.Some(d.SD), metrics.Some(d.Low), metrics.Some(d.High)
						to.Holm = metrics.Some(e.Holm)
					}
				}
				table.Entries = append(table.Entries, entry)
			}
		}
		out.Tables = append(out.Tables, table)
	}
	return out
}

func (t *Table) labels(row, column int) map[string]string {
	labels := slices.Concat(t.RowLabels[row], t.ColumnLabels[column])
	out := map[string]string{}
	for i, axis := range slices.Concat(t.Rows, t.Columns) {
		out[axis] = labels[i]
	}
	return out
}
