package report

import (
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/internal/lists"
)

type replicate struct {
	key    string // its labels on the axes of replicates
	result study.Result
}

// grouped holds results by their labels on the axes of each side of a table or figure.
type grouped struct {
	labels [][][]string // by side: label combinations that occur, in the order of the study
	groups map[string][]replicate
}

// at returns the replicates that have the given labels on each side.
func (g *grouped) at(labels ...[]string) []replicate { return g.groups[groupKey(labels)] }

// single returns the labels of a side that has one axis.
func (g *grouped) single(side int) []string {
	return lists.Map(g.labels[side], func(labels []string) string { return labels[0] })
}

// groupKey joins labels to a key, which is unique because labels contain no control characters.
func groupKey(labels [][]string) string {
	parts := lists.Map(labels, func(l []string) string { return strings.Join(l, "\x1f") })
	return strings.Join(parts, "\x1e")
}

// group groups results by their labels on the axes of each side of a table or figure, such as rows
// and columns; over lists the axes of replicates. When a study is loaded, it is checked that each
// axis with several labels is in one of these lists.
func group(
	s *study.Study, results []study.Result, over []string, where map[string][]string,
	sides ...[]string,
) *grouped {
	out := &grouped{labels: make([][][]string, len(sides)), groups: map[string][]replicate{}}
	for _, r := range results {
		if !r.Cell.Matches(where) {
			continue
		}
		labels := lists.Map(sides, r.Cell.Of)
		key := groupKey(labels)
		sameRun := func(old replicate) bool { return old.result.Cell.ID == r.Cell.ID }
		if !slices.ContainsFunc(out.groups[key], sameRun) { // cells may share a run
			new := replicate{strings.Join(r.Cell.Of(over), "\x1f"), r}
			out.groups[key] = append(out.groups[key], new)
		}
	}
	for side, axes := range sides {
		out.labels[side] = combinations(s, axes, where, results)
	}
	return out
}

// combinations returns the distinct combinations of labels that results have on the given axes, in
// the order of the study.
func combinations(
	s *study.Study, axes []string, where map[string][]string, results []study.Result,
) [][]string {
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

func resultsOf(list []replicate) []study.Result {
	return lists.Map(list, func(r replicate) study.Result { return r.result })
}

// values returns the values of a metric and the keys of the replicates that have one. The value of
// a replicate that diverged is NaN: if it were omitted, the mean of the others would make the
// method look better than it is.
func values(list []replicate, metric string) (keys []string, x []float64) {
	for _, r := range list {
		if v, ok := r.result.Value(metric); ok {
			keys, x = append(keys, r.key), append(x, v)
		}
	}
	return keys, x
}

// pairValues returns the values of the replicates that are in both lists, in the same order.
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

// pairItems compares two lists of replicates item by item; nil if items are not known.
func pairItems(s *study.Study, a, b []replicate, metric string) *study.ItemDifference {
	keysA, _ := values(a, metric)
	keysB, _ := values(b, metric)
	var items [2][][]float64
	for side, list := range [][]replicate{a, b} {
		for _, r := range list {
			if !slices.Contains(keysA, r.key) || !slices.Contains(keysB, r.key) {
				continue
			}
			values, err := s.Items(r.result, metric)
			if err != nil || len(values) == 0 {
				return nil
			}
			items[side] = append(items[side], values)
		}
	}
	return study.PairItems(items[0], items[1], study.Level)
}

func join(labels []string) string { return strings.Join(labels, " · ") }
