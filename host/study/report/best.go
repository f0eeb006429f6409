package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/internal/safetext"
)

// Choice is the label of an axis that was chosen for an entry of a table.
type Choice struct {
	Label string `json:"label"`
	AtEnd bool   `json:"at_end"` // it is the first or last of several values
	Tried int    `json:"tried"`  // number of values whose replicates to choose on are all known
	Of    int    `json:"of"`     // number of values that the study has here
}

// choose chooses a label of the axis for the entry in the given row and column, and returns the
// replicates to report there. If no label can be chosen yet, the choice is nil, and the replicates
// are the planned ones, without results.
func (g *grouped) choose(b *study.Best, row, column []string) (*Choice, []replicate) {
	reported := func(label string) []replicate {
		list := slices.Clone(g.at(row, column, []string{label}))
		return slices.DeleteFunc(list, func(r replicate) bool {
			return b.On != nil && r.result.Cell.Matches(b.On)
		})
	}
	list, best := b.Choose(g.single(2), func(label string) []study.Result {
		return resultsOf(g.at(row, column, []string{label}))
	})
	if best < 0 {
		var most []replicate
		for _, c := range list {
			if of := reported(c.Label); len(of) > len(most) {
				most = of
			}
		}
		for i, r := range most {
			most[i].result = study.Result{Cell: r.result.Cell, State: study.Missing}
		}
		return nil, most
	}
	choice := &Choice{Label: list[best].Label, Of: len(list)}
	first, last := 0, 0 // the least and the greatest order of a label, relative to the chosen one
	for i, c := range list {
		if c.Tried {
			choice.Tried++
		}
		order := i - best // in the order of the study, unless both are numbers
		x, errX := strconv.ParseFloat(c.Label, 64)
		y, errY := strconv.ParseFloat(choice.Label, 64)
		if errX == nil && errY == nil && x != y {
			order = cmp.Compare(x, y)
		}
		first, last = min(first, order), max(last, order)
	}
	choice.AtEnd = len(list) > 1 && (first == 0 || last == 0)
	return choice, reported(choice.Label)
}

// ChoiceText formats the choice of an entry, as in "1e-2", with a dagger if it is at an end of the
// axis; "" if there is none.
func (e Entry) ChoiceText() string {
	c := e.Choice
	if c == nil {
		return ""
	}
	text := safetext.Words(c.Label)
	if c.AtEnd {
		text += "†"
	}
	if c.Tried < c.Of {
		text += fmt.Sprintf(" of %d/%d", c.Tried, c.Of)
	}
	return text
}

func (t *Table) choiceNotes() []string {
	if t.Best == nil {
		return nil
	}
	mean := "lowest"
	if t.Best.Better == "higher" {
		mean = "highest"
	}
	note := fmt.Sprintf("With each value: its %s, chosen by the %s mean of %s",
		t.Best.Axis, mean, metricPhrase(t.Best.Metric))
	switch {
	case t.Best.On != nil:
		var on []string
		for _, axis := range t.Over {
			if labels := t.Best.On[axis]; len(labels) > 0 {
				on = append(on, axis+" "+strings.Join(labels, ", "))
			}
		}
		note += fmt.Sprintf(" with %s; reported are the others.", strings.Join(on, " and "))
	case t.Best.Metric == t.Metric:
		note += " on the replicates that are reported: that flatters, " +
			"the more the more values were tried, and intervals do not know of it."
	default:
		note += " on the replicates that are reported."
	}
	notes := []string{note}
	if t.any(func(e Entry) bool { return e.Choice != nil && e.Choice.AtEnd }) {
		notes = append(notes, fmt.Sprintf("†: the first or last %s that was tried: "+
			"a better one may lie beyond.", t.Best.Axis))
	}
	if t.any(func(e Entry) bool { return e.Choice != nil && e.Choice.Tried < e.Choice.Of }) {
		notes = append(notes, "“of 2/3”: two of the three values are done, and the choice may change.")
	}
	return notes
}

func (t *Table) any(is func(Entry) bool) bool {
	return slices.ContainsFunc(slices.Concat(t.Entries...), is)
}
