package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/host/study"
)

// Choice is the value of an axis that was chosen for one place of a table.
type Choice struct {
	Label string `json:"label"`
	AtEnd bool   `json:"at_end"` // it is the first or the last of several values: a better one may lie beyond
	Tried int    `json:"tried"`  // values whose replicates to choose on are all known
	Of    int    `json:"of"`     // values that the study has here
}

// candidate is a value of the axis from which is chosen, in one place of a table.
type candidate struct {
	label              string
	choosing, reported []replicate
	mean               float64 // of the replicates to choose on; NaN where not all of them are known, or one diverged
	known              bool
}

// choose chooses a value of the axis for the place of a row and a column, and returns the
// replicates to report there. The choice is nil while there is nothing to choose by; then
// the replicates are those planned, without results.
func (g *grouped) choose(b *study.Best, row, column []string) (choice *Choice, reported []replicate) {
	var list []candidate
	for _, labels := range g.labels[2] {
		c := candidate{label: labels[0], mean: math.NaN()}
		for _, r := range g.at(row, column, labels) {
			if b.On == nil || !r.result.Cell.Matches(b.On) {
				c.reported = append(c.reported, r)
			}
			if b.On == nil || r.result.Cell.Matches(b.On) {
				c.choosing = append(c.choosing, r)
			}
		}
		if len(c.choosing) == 0 {
			continue
		}
		if _, x := values(c.choosing, b.Metric); len(x) == len(c.choosing) {
			c.mean, c.known = study.Describe(x).Mean, true
		}
		list = append(list, c)
	}
	tried := 0
	means := make([]float64, len(list))
	for i, c := range list {
		if c.known {
			tried++
		}
		means[i] = c.mean
	}
	best := study.Pick(b.Better, means)
	if best < 0 {
		for _, c := range list {
			for _, r := range c.reported {
				if len(reported) < len(c.reported) {
					reported = append(reported, replicate{r.key, study.Result{Cell: r.result.Cell, State: study.Missing}})
				}
			}
		}
		return nil, reported
	}
	return &Choice{list[best].label, atEnd(list, best), tried, len(list)}, list[best].reported
}

// atEnd reports whether a value is the first or the last of several: by their size if all
// are numbers, or else as the study lists them.
func atEnd(list []candidate, chosen int) bool {
	before, after := 0, 0
	for i, c := range list {
		order := i - chosen
		x, errX := strconv.ParseFloat(c.label, 64)
		y, errY := strconv.ParseFloat(list[chosen].label, 64)
		if errX == nil && errY == nil && x != y {
			order = map[bool]int{true: -1, false: 1}[x < y]
		}
		if order < 0 {
			before++
		} else if order > 0 {
			after++
		}
	}
	return len(list) > 1 && (before == 0 || after == 0)
}

// chosen is what stands behind a value: "1e-2", with a dagger at the end of the axis.
func (e Entry) chosen() string {
	c := e.Choice
	if c == nil {
		return ""
	}
	text := line(c.Label)
	if c.AtEnd {
		text += "†"
	}
	if c.Tried < c.Of {
		text += fmt.Sprintf(" of %d/%d", c.Tried, c.Of)
	}
	return text
}

// choiceNotes explain the choices, as sentences.
func (t *Table) choiceNotes() []string {
	if t.best == nil {
		return nil
	}
	first := fmt.Sprintf("With each value: the %s of its place, chosen by the %s mean of %s", t.best.Axis,
		map[bool]string{true: "highest", false: "lowest"}[t.best.Better == "higher"], metricPhrase(t.best.Metric))
	var notes []string
	switch {
	case t.best.On != nil:
		var on []string
		for _, axis := range t.Over {
			if labels := t.best.On[axis]; len(labels) > 0 {
				on = append(on, axis+" "+strings.Join(labels, ", "))
			}
		}
		notes = append(notes, fmt.Sprintf("%s with %s; reported are the others.", first, strings.Join(on, " and ")))
	case t.best.Metric == t.Metric:
		notes = append(notes, first+" on the replicates that are reported: that flatters, the more the more values were tried, and intervals do not know of it.")
	default:
		notes = append(notes, first+" on the replicates that are reported.")
	}
	atEnd, untried := false, false
	for _, row := range t.Entries {
		for _, e := range row {
			atEnd = atEnd || e.Choice != nil && e.Choice.AtEnd
			untried = untried || e.Choice != nil && e.Choice.Tried < e.Choice.Of
		}
	}
	if atEnd {
		notes = append(notes, fmt.Sprintf("†: the first or last %s that was tried: a better one may lie beyond.", t.best.Axis))
	}
	if untried {
		notes = append(notes, "“of 2/3”: two of the three values are done, and the choice may change.")
	}
	return notes
}

// joinNotes joins the parts of a note that are not empty.
func joinNotes(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "; ")
}
