package ruler

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/host/deploy/tasks"
)

// threshold is the average above which a model is considered good at a length: the average of
// Llama-2-7B (chat) at 4096 tokens (section 4 of the paper, and RULER's README).
const threshold = 85.6

// Report contains the scores of a model, in percent.
type Report struct {
	Model   string         `json:"model,omitempty"`
	Lengths []LengthReport `json:"lengths"`
	// Average is the mean of the averages of the lengths. Increasing and Decreasing are weighted
	// means, with weights 1, 2, 3, … from the shortest length to the longest, and from the longest
	// to the shortest.
	Average    float64 `json:"average"`
	Increasing float64 `json:"weighted_increasing"`
	Decreasing float64 `json:"weighted_decreasing"`
	Threshold  float64 `json:"threshold"`
	// Effective is the longest length whose average exceeds the threshold; 0 if there is none.
	Effective int `json:"effective_length"`
	// Notes lists caveats for comparisons with RULER's published numbers.
	Notes []string `json:"notes,omitempty"`
}

// LengthReport contains the scores at one length.
type LengthReport struct {
	Length  int                `json:"length"`
	Scores  map[string]float64 `json:"scores"` // by task
	Average float64            `json:"average"`
}

// NewReport summarizes the results of the tasks at each length, in ascending order: results has
// those of all tasks at the first length, then those at the second.
func NewReport(list []Task, lengths []int, results []*tasks.Result, notes ...string) *Report {
	r := &Report{Threshold: threshold, Notes: notes}
	if all := len(Tasks()); len(list) < all {
		r.Notes = append(r.Notes, fmt.Sprintf("averages are over %d of %d tasks", len(list), all))
	}
	n := float64(len(lengths))
	for i, length := range lengths {
		l := LengthReport{Length: length, Scores: map[string]float64{}}
		for j, t := range list {
			score := percent(results[i*len(list)+j].Metrics[0].Value)
			l.Scores[t.Name] = score
			l.Average += score / float64(len(list))
		}
		rank := float64(i + 1)
		r.Average += l.Average / n
		r.Increasing += l.Average * rank / (n * (n + 1) / 2)
		r.Decreasing += l.Average * (n + 1 - rank) / (n * (n + 1) / 2)
		if l.Average > r.Threshold {
			r.Effective = l.Length
		}
		r.Lengths = append(r.Lengths, l)
	}
	return r
}

// percent converts a mean to percent as RULER does, with Python's round(x, 2): the two-decimal
// number nearest to the exact value.
func percent(mean float64) float64 {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(mean*100, 'f', 2, 64), 64)
	return rounded
}

// Table returns a table with a heading, a row for each task and for the average, and a column for
// each length.
func (r *Report) Table() [][]string {
	heading, average := []string{""}, []string{"average"}
	for _, l := range r.Lengths {
		heading = append(heading, fmt.Sprint(l.Length))
		average = append(average, fmt.Sprintf("%.2f", l.Average))
	}
	rows := [][]string{heading}
	for _, t := range Tasks() {
		row := []string{t.Name}
		for _, l := range r.Lengths {
			if score, ok := l.Scores[t.Name]; ok {
				row = append(row, fmt.Sprintf("%.2f", score))
			}
		}
		if len(row) > 1 {
			rows = append(rows, row)
		}
	}
	return append(rows, average)
}

// Words returns the results that the table does not show, as text.
func (r *Report) Words() string {
	var b strings.Builder
	fmt.Fprintf(&b, "average %.2f; weighted by increasing length %.2f, by decreasing length %.2f\n",
		r.Average, r.Increasing, r.Decreasing)
	length, text := r.Effective, "%d (the longest whose average exceeds %.4g)"
	switch length {
	case 0:
		length, text = r.Lengths[0].Length, "below %d (no average exceeds %.4g)"
	case r.Lengths[len(r.Lengths)-1].Length:
		text = "%d at least, the longest tried (its average exceeds %.4g)"
	}
	fmt.Fprintf(&b, "effective length: "+text+"\n", length, r.Threshold)
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	return b.String()
}
