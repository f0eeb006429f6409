package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/study"
)

// replicate is one result in a place of a grouping.
type replicate struct {
	key    string // its labels of the axes of replicates
	result study.Result
}

// grouped are results by the labels that they have on each side.
type grouped struct {
	labels [][][]string // by side: combinations of labels that occur, in the order of the study
	places map[string][]replicate
}

// at returns the replicates whose labels on the sides are those given.
func (g *grouped) at(labels ...[]string) []replicate { return g.places[placeKey(labels)] }

// placeKey makes a key of labels. It is unique, as labels hold no control characters.
func placeKey(labels [][]string) string {
	parts := make([]string, len(labels))
	for i, l := range labels {
		parts[i] = strings.Join(l, "\x1f")
	}
	return strings.Join(parts, "\x1e")
}

// group sorts results into places. sides are the axes of each side of a table or figure, such as
// rows and columns, over those of the replicates. It fails when two results cannot be told apart,
// because an axis in which they differ is in none of these.
func group(s *study.Study, results []study.Result, over []string, where map[string][]string, sides ...[]string) (*grouped, error) {
	out := &grouped{labels: make([][][]string, len(sides)), places: map[string][]replicate{}}
	for _, r := range results {
		if !r.Cell.Matches(where) {
			continue
		}
		var place [][]string
		for _, axes := range sides {
			place = append(place, r.Cell.Of(axes))
		}
		key := placeKey(place)
		new := replicate{strings.Join(r.Cell.Of(over), "\x1f"), r}
		again := false
		for _, old := range out.places[key] {
			if old.key == new.key {
				for _, axis := range s.Axes {
					if a, b := old.result.Cell.Labels[axis.Name], r.Cell.Labels[axis.Name]; a != b {
						return nil, fmt.Errorf("cells with %s = %q and %q fall into the same place: give the axis a part, "+
							"make it one of the replicates in over, or restrict it with where", axis.Name, a, b)
					}
				}
				return nil, fmt.Errorf("two cells have the labels %s", s.Label(r.Cell))
			}
			again = again || old.result.Cell.ID == r.Cell.ID
		}
		if !again { // one run is one replicate, whatever labels it has
			out.places[key] = append(out.places[key], new)
		}
	}
	for side, axes := range sides {
		out.labels[side] = combinations(s, axes, where, results)
	}
	return out, nil
}

// combinations are the labels of some axes that results have, in the order in which the
// study has them.
func combinations(s *study.Study, axes []string, where map[string][]string, results []study.Result) [][]string {
	var out [][]string
	seen := map[string]bool{}
	for _, r := range results {
		labels := r.Cell.Of(axes)
		if key := strings.Join(labels, "\x1f"); r.Cell.Matches(where) && !seen[key] {
			seen[key] = true
			out = append(out, labels)
		}
	}
	slices.SortStableFunc(out, func(a, b []string) int {
		for i, name := range axes {
			axis, _ := s.Axis(name)
			if d := slices.Index(axis.Labels, a[i]) - slices.Index(axis.Labels, b[i]); d != 0 {
				return d
			}
		}
		return 0
	})
	return out
}

// values are the values of a metric, and the keys of the replicates that have one. That of a
// replicate that diverged is NaN: without it, the mean of the others would look better than the
// method is.
func values(list []replicate, metric string) (keys []string, x []float64) {
	for _, r := range list {
		if v, ok := r.result.Value(metric); ok {
			keys, x = append(keys, r.key), append(x, v)
		}
	}
	return keys, x
}

// pairValues are the values of the replicates that both lists have, in one order.
func pairValues(a, b []replicate, metric string) (x, y []float64) {
	keysA, valuesA := values(a, metric)
	keysB, valuesB := values(b, metric)
	for i, key := range keysA {
		if j := slices.Index(keysB, key); j >= 0 {
			x, y = append(x, valuesA[i]), append(y, valuesB[j])
		}
	}
	return x, y
}

const separator = " · "

func join(labels []string) string { return strings.Join(labels, separator) }
