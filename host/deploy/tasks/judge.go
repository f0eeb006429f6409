package tasks

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"github.com/cage-qat/cage/internal/lists"
)

// NoFilter is the name of the filter for unfiltered answers.
const NoFilter = "none"

// Judge returns the value of each metric for an item. Keys are metric and filter, as in
// "exact_match,strict-match".
func (t *Task) Judge(it *Item, a *Answer) (map[string]float64, error) {
	switch t.Kind {
	case Generation:
		if a.Text == nil {
			return nil, fmt.Errorf("%s: item %d has no text", t.Name, it.Doc)
		}
		if len(it.Targets) > 0 {
			share := contained(*a.Text, it.Targets)
			return t.ownMetrics(map[string]float64{
				Contained: share, ContainedAny: math.Ceil(share)}), nil
		}
		out := map[string]float64{}
		for _, f := range t.Filters {
			out[ExactMatch+","+f.Name] = indicator(t.comparable(f.find(*a.Text)) == t.comparable(it.Target))
		}
		return out, nil
	case Continuation:
		if len(a.LogProbs) != 1 || len(a.Greedy) != 1 {
			return nil, fmt.Errorf("%s: item %d has %d scores, want 1", t.Name, it.Doc, len(a.LogProbs))
		}
		return t.ownMetrics(map[string]float64{
			Perplexity: a.LogProbs[0], Acc: indicator(a.Greedy[0])}), nil
	case Text:
		sum := 0.0
		for _, l := range a.LogProbs {
			sum += l
		}
		count := len(whiteSpace.Split(it.Target, -1))
		return map[string]float64{
			logLikelihood: sum, words: float64(count), byteCount: float64(len(it.Target))}, nil
	}
	if len(a.LogProbs) != len(it.Choices) {
		return nil, fmt.Errorf("%s: item %d has %d scores for %d choices",
			t.Name, it.Doc, len(a.LogProbs), len(it.Choices))
	}
	byCharacter := make([]float64, len(it.Choices))
	for i, l := range a.LogProbs {
		byCharacter[i] = l / float64(utf8.RuneCountInString(it.Choices[i])) // as Python counts them
	}
	return t.ownMetrics(map[string]float64{
		Acc:     indicator(floats.MaxIdx(a.LogProbs) == it.Gold),
		AccNorm: indicator(floats.MaxIdx(byCharacter) == it.Gold)}), nil
}

func (t *Task) ownMetrics(values map[string]float64) map[string]float64 {
	out := map[string]float64{}
	for _, m := range t.Metrics {
		out[m+","+NoFilter] = values[m]
	}
	return out
}

// contained returns the share of targets that a text contains, as RULER computes it
// (scripts/eval/evaluate.py and synthetic/constants.py): control characters count as newlines.
func contained(text string, targets []string) float64 {
	text = lower(strings.Map(func(r rune) rune {
		if r < 0x20 {
			return '\n'
		}
		return r
	}, text))
	found := 0.0
	for _, target := range targets {
		found += indicator(strings.Contains(text, lower(target)))
	}
	return found / float64(len(targets))
}

func indicator(right bool) float64 {
	if right {
		return 1
	}
	return 0
}

// Invalid is the result of a filter without a match.
const Invalid = "[invalid]"

// find returns the first or last match of the filter; if it has groups, the first non-empty group.
func (f *Filter) find(text string) string {
	all := f.pattern.FindAllStringSubmatch(text, -1)
	if len(all) == 0 {
		return Invalid
	}
	match := all[0]
	if f.Last {
		match = all[len(all)-1]
	}
	if len(match) == 1 {
		return strip(match[0])
	}
	for _, group := range match[1:] {
		if group != "" {
			return strip(group)
		}
	}
	return Invalid
}

// comparable removes the parts of a text that comparisons ignore.
func (t *Task) comparable(s string) string {
	for _, p := range t.ignore {
		s = p.ReplaceAllString(s, "${end}") // the newline of pythonEnd, or nothing
	}
	if t.IgnoreCase {
		return lower(s)
	}
	return s
}

// lower is Python's str.lower, which applies Unicode's context-sensitive rules.
func lower(text string) string { return cases.Lower(language.Und).String(text) }

// pythonEnd translates a final $, which in Python also matches before a final newline.
func pythonEnd(pattern string) string {
	if rest, ok := strings.CutSuffix(pattern, "$"); ok && !strings.HasSuffix(rest, `\`) {
		return rest + `(?P<end>\n?)\z`
	}
	return pattern
}

// Metric is the value of a metric over all items.
type Metric struct {
	Name  string  `json:"name"` // metric and filter, as in "acc,none"
	Value float64 `json:"value"`
	// Error is the standard error; nil for perplexity, for which lm-eval draws it at random.
	Error *float64 `json:"stderr,omitempty"`
}

// Aggregate combines the values of all items, in the order of the task's metrics.
func (t *Task) Aggregate(values []map[string]float64) []Metric {
	var list []Metric
	for _, name := range t.MetricNames() {
		of := lists.Map(values, func(v map[string]float64) float64 { return v[name] })
		m := Metric{Name: name, Value: stat.Mean(of, nil)}
		if t.Kind == Text {
			// Over all texts together, so that longer ones have more weight.
			per, sum, count := byteCount, 0.0, 0.0
			if name == WordPerplexity+","+NoFilter {
				per = words
			}
			for _, v := range values {
				sum, count = sum+v[logLikelihood], count+v[per]
			}
			if m.Value = math.Exp(-sum / count); name == BitsPerByte+","+NoFilter {
				m.Value = -sum / count / math.Ln2
			}
		} else if strings.HasPrefix(name, Perplexity+",") {
			m.Value = math.Exp(-m.Value)
		} else if len(of) > 1 {
			e := stat.StdErr(stat.StdDev(of, nil), float64(len(of)))
			m.Error = &e
		}
		list = append(list, m)
	}
	return list
}

// MetricNames returns the task's metrics with their filters, as in "acc,none".
func (t *Task) MetricNames() (list []string) {
	for _, m := range t.Metrics {
		if m != ExactMatch {
			list = append(list, m+","+NoFilter)
			continue
		}
		for _, f := range t.Filters {
			list = append(list, m+","+f.Name)
		}
	}
	return list
}

// HigherIsBetter reports whether higher values of the metric are better. The name may include a
// filter.
func HigherIsBetter(name string) bool {
	metric, _, _ := strings.Cut(name, ",")
	return !strings.HasSuffix(metric, Perplexity) && metric != BitsPerByte
}

// Values that Judge returns for a text. Metrics are computed from their sums over all texts.
const (
	logLikelihood = "loglikelihood"
	words         = "words"
	byteCount     = "bytes"
)

// whiteSpace separates words as in lm-eval: re.split(r"\s+", text).
var whiteSpace = regexp.MustCompile(`[\s` + space + `]+`)

// Cut truncates a generated text before the first occurrence of a string in until.
func Cut(text string, until []string) string {
	for _, u := range until {
		if u != "" {
			text, _, _ = strings.Cut(text, u)
		}
	}
	return text
}
