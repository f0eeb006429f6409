package ruler

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"

	"github.com/cage-qat/cage/internal/jsonlines"
)

// threshold is the average above which a model is considered good at a length: the average of
// Llama-2-7B (chat) at 4096 tokens (section 4 of the paper, and RULER's README).
const threshold = 85.6

// Report contains the scores of the answers in a directory, in percent.
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
	Length  int                   `json:"length"`
	Scores  map[string]TaskReport `json:"scores"`
	Average float64               `json:"average"`
}

// TaskReport is the score of a task at a length.
type TaskReport struct {
	Score   float64 `json:"score"`
	Answers int     `json:"answers"`
	// Empty is the number of answers without any text.
	Empty int `json:"empty"`
}

// Report scores all answers in the directory.
func (d Directory) Report() (*Report, error) {
	lengths, err := d.lengths()
	if err != nil {
		return nil, err
	}
	r := &Report{Threshold: threshold}
	for _, length := range lengths {
		l := LengthReport{Length: length, Scores: map[string]TaskReport{}}
		sum := 0.0
		for _, t := range Tasks() {
			s, err := d.scoreTask(t, length)
			if err != nil && !isMissing(err) {
				return nil, err
			}
			if err == nil && s.Answers > 0 {
				l.Scores[t.Name] = s
				sum += s.Score
			}
		}
		if n := len(l.Scores); n > 0 {
			l.Average = sum / float64(n)
			r.Lengths = append(r.Lengths, l)
		}
	}
	if len(r.Lengths) == 0 {
		return nil, fmt.Errorf("%s has no answers: want LENGTH/pred/TASK.jsonl in it, such as "+
			"4096/pred/vt.jsonl", d.path)
	}
	r.average()
	m, err := d.Manifest()
	if err != nil {
		return nil, err
	}
	r.note(m)
	return r, nil
}

type scoredAnswer struct {
	Pred    *string  `json:"pred"`
	Outputs []string `json:"outputs"`
}

func (d Directory) scoreTask(t Task, length int) (TaskReport, error) {
	path := d.answers(length, t)
	var answers []Answer
	r := TaskReport{}
	for e, err := range jsonlines.Read[scoredAnswer](path) {
		if errors.Is(err, jsonlines.ErrTorn) {
			break // the model is still answering, or was interrupted
		}
		if err != nil {
			return r, err
		}
		a := e.Value
		if a.Pred == nil || len(a.Outputs) == 0 {
			err := errors.New("missing pred (the answer) or outputs (texts that it should contain)")
			return r, &jsonlines.Error{Path: path, Line: e.Line, Err: err}
		}
		if Clean(*a.Pred) == "" {
			r.Empty++
		}
		answers = append(answers, Answer{Pred: *a.Pred, Outputs: a.Outputs})
	}
	if r.Answers = len(answers); r.Answers > 0 {
		r.Score = t.Score(answers)
	}
	return r, nil
}

func (r *Report) average() {
	n := float64(len(r.Lengths))
	for i, l := range r.Lengths {
		rank := float64(i + 1)
		r.Average += l.Average / n
		r.Increasing += l.Average * rank / (n * (n + 1) / 2)
		r.Decreasing += l.Average * (n + 1 - rank) / (n * (n + 1) / 2)
		if l.Average > r.Threshold {
			r.Effective = l.Length
		}
	}
}

// note adds notes on how the report differs from a RULER report.
func (r *Report) note(m *Manifest) {
	all := map[string]bool{}
	most := 0
	for _, l := range r.Lengths {
		for name, s := range l.Scores {
			all[name] = true
			most = max(most, s.Answers)
		}
	}
	if m != nil {
		if most = m.Samples; m.Model != nil {
			r.Model = m.Model.Name
		}
		maps.DeleteFunc(m.LeftOut, func(name, _ string) bool { return all[name] })
		if len(m.LeftOut) > 0 {
			r.Notes = append(r.Notes, "left out: "+leftOut(m.LeftOut))
		}
		r.Notes = append(r.Notes, m.Substitutions...)
	}
	if n := len(Tasks()); len(all) < n {
		r.Notes = append(r.Notes, fmt.Sprintf("averages are over %d of %d tasks", len(all), n))
	}
	for _, l := range r.Lengths {
		for _, t := range Tasks() {
			if !all[t.Name] {
				continue
			}
			if n := l.Scores[t.Name].Answers; n < most {
				r.Notes = append(r.Notes, fmt.Sprintf("%s at %d has %d of %d answers",
					t.Name, l.Length, n, most))
			}
		}
	}
}

func leftOut(tasks map[string]string) string {
	by := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(tasks)) {
		by[tasks[name]] = append(by[tasks[name]], name)
	}
	var list []string
	for _, input := range slices.Sorted(maps.Keys(by)) {
		list = append(list, strings.Join(by[input], ", ")+" (without "+input+")")
	}
	return strings.Join(list, "; ")
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
		row, scored := []string{t.Name}, false
		for _, l := range r.Lengths {
			cell := "–"
			if s, ok := l.Scores[t.Name]; ok {
				cell, scored = fmt.Sprintf("%.2f", s.Score), true
			}
			row = append(row, cell)
		}
		if scored {
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

// Clean returns answer in the form that RULER scores: without leading and trailing white space, and
// with newlines in place of control characters (scripts/eval/evaluate.py).
func Clean(answer string) string {
	answer = strings.TrimFunc(answer, isSpace)
	answer = strings.Map(func(r rune) rune {
		if r < 0x20 {
			return '\n'
		}
		return r
	}, answer)
	return strings.TrimFunc(answer, isSpace)
}

// shareFound is RULER's string_match_all for one answer: the fraction of wanted that it contains.
func shareFound(answer string, wanted []string) float64 {
	found := 0.0
	for _, w := range wanted {
		if strings.Contains(lower(answer), lower(w)) {
			found++
		}
	}
	return found / float64(len(wanted))
}

// anyFound is RULER's string_match_part for one answer: 1 if any of wanted is in it, else 0.
func anyFound(answer string, wanted []string) float64 {
	return math.Ceil(shareFound(answer, wanted))
}

// lower is Python's str.lower, which applies Unicode's context-sensitive rules.
func lower(text string) string { return cases.Lower(language.Und).String(text) }

// Score returns the mean score of answers to a task in percent, rounded to two decimals as in
// RULER.
func (t Task) Score(answers []Answer) float64 {
	sum := 0.0
	for _, a := range answers {
		sum += t.scored(Clean(a.Pred), a.Outputs)
	}
	// Python's round(x, 2): the two-decimal number nearest to the exact value.
	text := strconv.FormatFloat(sum/float64(len(answers))*100, 'f', 2, 64)
	rounded, _ := strconv.ParseFloat(text, 64)
	return rounded
}
