package rundir

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/internal/schema"
)

// Condition is a condition on a run.
type Condition struct {
	Name  string // a name for [Run.Lookup]
	Op    string // one of = != < <= > >= ~
	Value string
}

// operators, longer ones before those they begin with.
var operators = []string{"<=", ">=", "!=", "==", "=", "<", ">", "~"}

// ParseCondition parses NAME OP VALUE, such as "quantizer.bits=4", "val_loss<3" or
// "run~demo". Numbers are compared as numbers and everything else as text; ~ means
// contains. A run that has nothing under that name does not satisfy the condition.
func ParseCondition(text string) (Condition, error) {
	at := strings.IndexAny(text, "=<>!~")
	if at > 0 {
		for _, op := range operators {
			if rest, ok := strings.CutPrefix(text[at:], op); ok {
				if op == "==" {
					op = "="
				}
				return Condition{strings.TrimSpace(text[:at]), op, plain(strings.TrimSpace(rest))}, nil
			}
		}
	}
	return Condition{}, fmt.Errorf("%q is not a condition: want NAME=VALUE, or != < <= > >= ~ in place of =", text)
}

// Terms splits a text at its spaces, except those next to the operator of a condition.
func Terms(text string) []string {
	var terms []string
	open := false // the last term ends with an operator
	for _, next := range strings.Fields(text) {
		begins := slices.ContainsFunc(operators, func(op string) bool { return strings.HasPrefix(next, op) })
		if n := len(terms); n > 0 && (open || begins) {
			terms[n-1] += next
		} else {
			terms = append(terms, next)
		}
		open = slices.ContainsFunc(operators, func(op string) bool { return strings.HasSuffix(next, op) })
	}
	return terms
}

// Holds reports whether a run satisfies the condition.
func (c Condition) Holds(r *Run) bool {
	text, ok := r.Lookup(c.Name)
	if !ok {
		return false
	}
	if c.Op == "~" {
		return strings.Contains(text, c.Value)
	}
	order, comparable := compare(text, c.Value)
	switch c.Op {
	case "=":
		return comparable && order == 0
	case "!=":
		return !comparable || order != 0
	case "<":
		return comparable && order < 0
	case "<=":
		return comparable && order <= 0
	case ">":
		return comparable && order > 0
	default:
		return comparable && order >= 0
	}
}

// compare orders two values, as numbers when both are; NaN has no order.
func compare(a, b string) (order int, ok bool) {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	if errX != nil || errY != nil {
		return strings.Compare(a, b), true
	}
	return cmp.Compare(x, y), x == x && y == y
}

// Filter returns the runs that satisfy all conditions.
func Filter(list []*Run, conditions []Condition) []*Run {
	var out []*Run
	for _, r := range list {
		if !slices.ContainsFunc(conditions, func(c Condition) bool { return !c.Holds(r) }) {
			out = append(out, r)
		}
	}
	return out
}

// Sort sorts runs by a name for [Run.Lookup], in descending order if a "-" precedes it.
// Runs that have nothing under that name, or NaN, come last.
func Sort(list []*Run, by string) {
	name, descending := strings.CutPrefix(by, "-")
	slices.SortStableFunc(list, func(a, b *Run) int {
		x, okX := a.Lookup(name)
		y, okY := b.Lookup(name)
		if !okX || !okY {
			return cmp.Compare(rank(okX), rank(okY))
		}
		order, comparable := compare(x, y)
		if !comparable {
			return cmp.Compare(rank(x != "NaN"), rank(y != "NaN"))
		}
		if descending {
			return -order
		}
		return order
	})
}

func rank(first bool) int {
	if first {
		return 0
	}
	return 1
}

// Has reports whether any of the runs has something under that name, or will have it when
// the run is done. Where there are no runs, every name is good.
func Has(list []*Run, name string) bool {
	later := slices.Contains(metrics.NumberNames(reflect.TypeFor[metrics.Summary]()), name)
	return len(list) == 0 || slices.ContainsFunc(list, func(r *Run) bool {
		_, ok := r.Lookup(name)
		return ok || later && r.State != Done && r.State != Unreadable
	})
}

// maxSuggested bounds the names among which one is looked for that was probably meant.
const maxSuggested = 10_000

// Known returns an error unless the runs have that name, by [Has]. The error suggests the
// name that was probably meant.
func Known(list []*Run, name string) error {
	if Has(list, name) {
		return nil
	}
	names := map[string]bool{dirName: true, stateName: true, modifiedName: true}
	for _, r := range list {
		if len(names) >= maxSuggested {
			break
		}
		for _, e := range r.config {
			names[e.Key] = true
		}
		for _, e := range r.results {
			names[e.Name] = true
		}
	}
	err := fmt.Errorf("no run has %q", schema.Clipped(name, 100))
	if near := schema.Nearest(name, slices.Sorted(maps.Keys(names))); near != "" {
		err = fmt.Errorf("%w; did you mean %s?", err, near)
	}
	return err
}
