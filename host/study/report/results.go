package report

import (
	"bytes"
	"encoding/csv"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/train/metrics"
)

// Results holds the numbers of a report, for JSON.
type Results struct {
	Study  string         `json:"study"`
	Cells  int            `json:"cells"`
	States map[string]int `json:"states"` // number of cells in each state
	Tables []TableResults `json:"tables"`
	// Damages lists the runs that are left out because one of their files cannot be read.
	Damages []Damage `json:"unreadable,omitempty"`
	// Stale lists the runs that are left out because a plugin or the data has changed
	// since.
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

// EntryResults holds the numbers of an entry. Unknown numbers are left out.
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
	out := Results{Study: r.Name, Cells: r.Cells, States: r.States, Tables: []TableResults{}, Damages: r.Damages, Stale: r.Stale}
	for i := range r.Tables {
		out.Tables = append(out.Tables, r.Tables[i].results())
	}
	return out
}

func (t *Table) results() TableResults {
	out := TableResults{Title: t.Title, Metric: t.Metric, Better: t.Better, Over: t.Over, Baseline: t.base, Best: t.best, Level: study.Level, Entries: []EntryResults{}}
	for i := range t.Rows {
		for c := range t.Columns {
			e := t.Entries[i][c]
			if e.Expected == 0 {
				continue
			}
			entry := EntryResults{Labels: t.labels(i, c), N: e.N, Expected: e.Expected, Mark: e.Mark, Choice: e.Choice}
			if e.N > 0 {
				entry.Mean = metrics.Some(e.Mean)
			}
			if e.N > 1 {
				entry.SD = metrics.Some(e.SD)
			}
			if d := e.Difference; d != nil {
				entry.Difference = &DifferenceResults{N: d.N, Mean: metrics.Number(d.Mean)}
				if d.N > 1 {
					entry.Difference.SD, entry.Difference.Low, entry.Difference.High = metrics.Some(d.SD), metrics.Some(d.Low), metrics.Some(d.High)
					entry.Difference.Holm = metrics.Some(e.Holm)
				}
			}
			out.Entries = append(out.Entries, entry)
		}
	}
	return out
}

func (t *Table) labels(row, column int) map[string]string {
	return byAxis(slices.Concat(t.RowAxes, t.ColAxes), slices.Concat(t.Rows[row], t.Columns[column]))
}

func byAxis(axes, labels []string) map[string]string {
	out := map[string]string{}
	for i, axis := range axes {
		out[axis] = labels[i]
	}
	return out
}

// TextNotes returns notes that explain [Table.Text].
func (t *Table) TextNotes() []string {
	notes := t.notes()
	for i, n := range notes {
		notes[i] = strings.Replace(n, "Bold:", "*:", 1)
	}
	return notes
}

// Text returns the table as rows of texts. The first is the heading; the best of each row
// has a star. [Table.TextNotes] explains it.
func (t *Table) Text() [][]string {
	g := t.grids()[0]
	head := slices.Clone(t.RowAxes)
	for _, labels := range g.columns {
		head = append(head, line(join(labels)))
	}
	out := [][]string{head}
	for i, labels := range t.Rows {
		row := slices.Clone(labels)
		for _, c := range g.cells[i] {
			text := c.text + c.sign
			if c.bold {
				text += " *"
			}
			if c.note != "" {
				text += " (" + c.note + ")"
			}
			row = append(row, text)
		}
		out = append(out, row)
	}
	return out
}

// CSV returns every entry of every table as a line, in full precision: the labels of all axes
// (empty for axes of replicates and axes that are not in the table; a label that was chosen too),
// the numbers, and the comparisons. Missing numbers are empty.
func (r *Report) CSV() ([]byte, error) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	head := []string{"table", "metric"}
	for _, a := range r.Axes {
		head = append(head, a.Name)
	}
	head = append(head, "n", "expected", "mean", "sd", "mark", "baseline", "difference_n", "difference", "difference_sd", "difference_low", "difference_high", "difference_holm")
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

func (e EntryResults) record(axes []study.Axis, t *Table) []string {
	record := []string{t.Title, t.Metric}
	for _, a := range axes {
		label := e.Labels[a.Name]
		if t.best != nil && t.best.Axis == a.Name && e.Choice != nil {
			label = e.Choice.Label
		}
		record = append(record, label)
	}
	record = append(record, strconv.Itoa(e.N), strconv.Itoa(e.Expected), meanText(e.Mean), exactText(e.SD), string(e.Mark))
	if d := e.Difference; d != nil {
		return append(record, t.baseName(), strconv.Itoa(d.N), meanText(&d.Mean), exactText(d.SD), exactText(d.Low), exactText(d.High), exactText(d.Holm))
	}
	return append(record, "", "", "", "", "", "", "")
}

// meanText writes the mean of some replicates: NaN where one of them is, which is not to have none.
func meanText(x *metrics.Number) string {
	if x != nil && math.IsNaN(float64(*x)) {
		return "NaN"
	}
	return exactText(x)
}

// exactText writes a number so that it reads back as the same, "" for none.
func exactText(x *metrics.Number) string {
	if x == nil || math.IsNaN(float64(*x)) {
		return ""
	}
	return strconv.FormatFloat(float64(*x), 'g', -1, 64)
}
