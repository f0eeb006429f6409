package ruler

import (
	"strconv"
	"strings"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// Clean returns an answer in the form in which RULER scores it: without white space at
// its ends, and with line breaks in place of control characters
// (scripts/eval/evaluate.py).
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

// shareFound is string_match_all for one answer: the share of what is wanted that is in it.
func shareFound(answer string, wanted []string) float64 {
	found := 0.0
	for _, w := range wanted {
		if strings.Contains(lower(answer), lower(w)) {
			found++
		}
	}
	return found / float64(len(wanted))
}

// anyFound is string_match_part for one answer: 1 if anything that is wanted is in it.
func anyFound(answer string, wanted []string) float64 {
	for _, w := range wanted {
		if strings.Contains(lower(answer), lower(w)) {
			return 1
		}
	}
	return 0
}

// lower is Python's str.lower, which follows Unicode where that looks at neighbours, too.
func lower(text string) string { return cases.Lower(language.Und).String(text) }

// Score returns the mean score of answers to a task in percent, rounded to two decimals
// as in RULER.
func (t Task) Score(answers []Answer) float64 {
	sum := 0.0
	for _, a := range answers {
		sum += t.scored(Clean(a.Pred), a.Outputs)
	}
	return round(sum / float64(len(answers)) * 100)
}

// round is Python's round(x, 2): the nearest two decimals of the exact value.
func round(x float64) float64 {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'f', 2, 64), 64)
	return rounded
}
