package report

import (
	"fmt"
	"math"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/internal/safetext"
)

func firstLine(s string) string {
	for l := range strings.Lines(s) {
		if l = safetext.Words(l); l != "" {
			return l
		}
	}
	return "no error was recorded"
}

var notInSlugs = regexp.MustCompile(`[^a-z0-9]+`)

func slug(s string) string {
	const longest = 40
	s = notInSlugs.ReplaceAllString(strings.ToLower(safetext.ASCII(safetext.Words(s))), "-")
	s = strings.TrimPrefix(s, "-")
	return strings.TrimSuffix(s[:min(len(s), longest)], "-")
}

var (
	// absolutePath matches absolute paths of two elements or more.
	absolutePath = regexp.MustCompile("(^|[\\s\"'`=:(\\[,])((?:/[^/\\s\"'`:,()\\[\\]]+){2,})")
	// clock matches times of day, with an optional date before them.
	clock = regexp.MustCompile(`(?:\d{4}-\d\d-\d\d[T ]|\b)\d\d:\d\d:\d\d(?:\.\d+)?` +
		`(?:Z|[+-]\d\d:?\d\d)?\s?`)
)

// anonymize removes from a text everything that depends on when and where a study ran: times of
// day, and the directories of absolute paths.
func anonymize(s string) string {
	s = absolutePath.ReplaceAllStringFunc(s, func(match string) string {
		i := strings.IndexByte(match, '/')
		return match[:i] + "…/" + path.Base(match[i:])
	})
	return clock.ReplaceAllString(s, "")
}

// chooseFormat returns the format of a table that does not specify one: the decimals that show two
// digits of a typical standard deviation, or four digits of the means.
func chooseFormat(samples []study.Sample) string {
	var deviations, means []float64
	for _, s := range samples {
		if s.SD > 0 && !math.IsInf(s.SD, 0) {
			deviations = append(deviations, s.SD)
		}
		if m := math.Abs(s.Mean); m > 0 && !math.IsInf(m, 0) {
			means = append(means, m)
		}
	}
	if len(means) == 0 {
		return "%.4g"
	}
	slices.Sort(means)
	slices.Sort(deviations)
	smallest, largest := means[0], means[len(means)-1]
	if smallest < 1e-3 || largest >= 1e6 || largest/smallest > 1e4 {
		return "%.3g"
	}
	decimals := 3 - int(math.Floor(math.Log10(means[len(means)/2])))
	if len(deviations) > 0 {
		decimals = 1 - int(math.Floor(math.Log10(deviations[len(deviations)/2])))
	}
	return fmt.Sprintf("%%.%df", min(max(decimals, 0), 6))
}

// differenceFormat returns the format of a table's differences: it has as many decimals as that of
// the means, or more if intervals are narrow, so that the half-width of a typical interval shows
// two digits, and no half-width is written as zero.
func differenceFormat(format string, entries []Entry) string {
	var decimals int
	if n, err := fmt.Sscanf(format, "%%.%df", &decimals); n != 1 || err != nil {
		return format
	}
	_, suffix, _ := strings.Cut(format, "f") // such as " %%"
	var halves []float64
	for _, e := range entries {
		if d := e.Difference; d != nil {
			half := math.Abs(d.Mean)
			if d.HasInterval() {
				half = (d.High - d.Low) / 2
			}
			if half > 0 && !math.IsInf(half, 0) {
				halves = append(halves, half)
			}
		}
	}
	if len(halves) == 0 {
		return format
	}
	slices.Sort(halves)
	first := func(x float64) int { return -int(math.Floor(math.Log10(x))) } // its first decimal
	needed := min(max(1+first(halves[len(halves)/2]), first(halves[0])), 8)
	return fmt.Sprintf("%%.%df", max(decimals, needed)) + suffix
}

func formatNumber(format string, x float64) string {
	switch {
	case math.IsNaN(x):
		return "NaN"
	case math.IsInf(x, 1):
		return "∞"
	case math.IsInf(x, -1):
		return "−∞"
	}
	s := fmt.Sprintf(format, x)
	if rest, negative := strings.CutPrefix(s, "-"); negative && isZero(rest) {
		s = rest // there is no −0.000
	}
	return minus(s)
}

func (t *Table) signed(x float64) string {
	s := formatNumber(t.differences, x)
	if x > 0 && !isZero(s) {
		return "+" + s
	}
	return s
}

func isZero(s string) bool { return !strings.ContainsAny(s, "123456789∞") }

// minus replaces hyphens by minus signs, including those in exponents.
func minus(s string) string { return strings.ReplaceAll(s, "-", "−") }

// MeanText formats the mean of an entry, with the standard deviation of several replicates.
func (t *Table) MeanText(e Entry) string { return sampleText(e.Sample, t.Format) }

func sampleText(x study.Sample, format string) string {
	s := formatNumber(format, x.Mean)
	if !math.IsNaN(x.SD) {
		s += " ± " + formatNumber(format, x.SD)
	}
	return s
}

// DifferenceText formats the difference of an entry from the baseline, with its confidence interval
// if it has one. It returns "" if the entry has no difference.
func (t *Table) DifferenceText(e Entry) string {
	if e.Difference == nil {
		return ""
	}
	return intervalText(t.signed, *e.Difference)
}

func intervalText(write func(float64) string, d study.Difference) string {
	s := write(d.Mean)
	if d.HasInterval() {
		s += fmt.Sprintf(" [%s, %s]", write(d.Low), write(d.High))
	}
	return s
}

// itemsText formats the interval over items, and the p-value if there is one.
func (t *Table) itemsText(d study.ItemDifference) string {
	s := fmt.Sprintf("items [%s, %s]", t.signed(d.Low), t.signed(d.High))
	if !math.IsNaN(d.P) {
		s += fmt.Sprintf(", p = %.2g", d.P)
	}
	return s
}

func (t *Table) notes() []string {
	if t.common == 0 {
		return []string{"No cell of this table is done, or none has its metric."}
	}
	what := "Mean ± standard deviation"
	if t.common < 2 {
		what = "Values"
	}
	first := fmt.Sprintf("%s of %s, n = %d", what, metricPhrase(t.Metric), t.common)
	if len(t.Over) > 0 && t.common > 1 {
		first += " (" + strings.Join(t.Over, ", ") + ")"
	}
	first += " unless noted"
	if t.Better != "none" {
		first += "; " + t.Better + " is better"
	}
	notes := append([]string{first + "."}, t.choiceNotes()...)
	if t.any(func(e Entry) bool { return e.N > 0 && e.N < e.Expected }) {
		notes = append(notes, "“2 of 3”: the mean is over those replicates that are done.")
	}
	if t.any(func(e Entry) bool { return e.N > 0 && (math.IsNaN(e.Mean) || math.IsInf(e.Mean, 0)) }) {
		notes = append(notes, "NaN or ∞: a replicate diverged, or that is its value.")
	}
	if t.any(func(e Entry) bool { return e.Mark == Best }) {
		notes = append(notes, "Bold: the best mean of its row.")
	}
	if t.any(func(e Entry) bool { return e.Mark == Tied }) {
		notes = append(notes, "≈: not told apart from the best, "+
			"for the 95 % interval of the paired difference includes zero.")
	}
	switch untested := t.any(func(e Entry) bool { return e.Mark == Untested }); {
	case untested && t.common < 2:
		notes = append(notes, "These are single runs: chance is not ruled out for any difference.")
	case untested:
		notes = append(notes, "?: chance is not ruled out: the replicates that the best has as well "+
			"are fewer than three, all differ by the same, or say the opposite of the means.")
	}
	return notes
}

func (t *Table) differenceNotes() []string {
	if t.common == 0 {
		return t.notes()
	}
	has := func(is func(e Entry, d *study.Difference) bool) bool {
		return t.any(func(e Entry) bool { return e.Difference != nil && is(e, e.Difference) })
	}
	bold := has(func(_ Entry, d *study.Difference) bool { return d.Clear() })
	first := fmt.Sprintf("Differences from %s, paired by replicate (n = %d unless noted), "+
		"with 95 %% intervals of Student's t", t.baseName(), t.common)
	if t.intervals > 1 {
		first += fmt.Sprintf(", of which %.2g of %d would leave out zero by chance",
			(1-study.Level)*float64(t.intervals), t.intervals)
	}
	notes := []string{first + "."}
	if bold {
		notes = append(notes, "Bold: zero is left out.")
	}
	switch {
	case has(func(e Entry, _ *study.Difference) bool { return t.clearWithHolm(e) }):
		notes = append(notes, "‡: also with Holm's correction.")
	case bold && t.intervals > 1:
		notes = append(notes, "With Holm's correction none is.")
	}
	if has(func(_ Entry, d *study.Difference) bool { return !d.HasInterval() }) {
		notes = append(notes, "Without an interval: fewer than three pairs, "+
			"or differences that are all the same or not finite.")
	}
	if t.any(func(e Entry) bool { return e.Items != nil }) {
		notes = append(notes, "Items: the 95 % interval over questions or sequences, by a paired "+
			"bootstrap of their means over replicates; p: the exact test of right and wrong answers, with "+
			"one replicate McNemar's. Other items might show the same of these models, "+
			"other replicates of the methods.")
	}
	if t.Best != nil {
		notes = append(notes, fmt.Sprintf("Each column with its own %s.", t.Best.Axis))
	}
	return notes
}
