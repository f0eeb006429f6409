package rundir

import (
	"context"
	"hash/maphash"
	"slices"
	"strings"
)

// Difference is a key whose values differ between runs.
type Difference struct {
	Key    string
	Values []string // the value in each run, in TOML; "" if the run does not have the key
}

// places are the keys that say where a run lies, not what it is.
var places = []string{"train.out"}

// Diff lists the configuration keys whose values are not the same in all runs, sorted. It
// returns at most so many, and how many more there are. It ends early with the context.
func Diff(ctx context.Context, list []*Run, most int) (out []Difference, more int, err error) {
	columns, err := differingColumns(ctx, list)
	if err != nil {
		return nil, 0, err
	}
	slices.SortFunc(columns, func(a, b *column) int { return strings.Compare(a.key, b.key) })
	shown := columns[:min(len(columns), most)]
	for _, c := range shown {
		d := Difference{c.key, make([]string, len(list))}
		for i, r := range list {
			d.Values[i], _ = r.entry(c.key)
		}
		out = append(out, d)
	}
	return out, len(columns) - len(shown), nil
}

// Varying returns at most the given number of keys that distinguish runs, those with the
// fewest values first. Hashes are left out, and keys that always change together with
// another. Keys that only some runs have, all with one value, come after the others.
// The cost is proportional to the keys of all runs; it ends early with the context.
func Varying(ctx context.Context, list []*Run, most int) ([]string, error) {
	list = slices.DeleteFunc(slices.Clone(list), func(r *Run) bool { return r.State == Unreadable }) // they have no keys
	columns, err := differingColumns(ctx, list)
	if err != nil {
		return nil, err
	}
	columns = slices.DeleteFunc(columns, func(c *column) bool { return strings.HasSuffix(c.key, "sha256") })
	firsts := map[uint64]*column{} // of the columns that always change together, the first
	for _, c := range columns {
		if first := firsts[c.pattern]; first == nil || c.key < first.key {
			firsts[c.pattern] = c
		}
	}
	columns = slices.DeleteFunc(columns, func(c *column) bool {
		first := firsts[c.pattern]
		of, both := strings.CutPrefix(first.key, roles[0])
		if both && c.key == roles[1]+of {
			first.shown = "quantizer." + of
		}
		return c != first
	})
	slices.SortFunc(columns, func(a, b *column) int {
		switch {
		case len(a.values) == len(b.values):
			return strings.Compare(a.key, b.key)
		case len(a.values) == 1 || len(b.values) == 1:
			return len(b.values) - len(a.values)
		}
		return len(a.values) - len(b.values)
	})
	var names []string
	for _, c := range columns[:min(len(columns), most)] {
		names = append(names, c.shown)
	}
	return names, nil
}

// roles are the tables of the quantizers in the order of their names.
var roles = []string{"quantizer.activations.", "quantizer.weights."}

// column is a key of the configurations of some runs. Hashes stand for the values.
type column struct {
	key, shown string
	runs       int      // that have the key
	values     []uint64 // the different ones
	pattern    uint64   // of which run has which value: equal for keys that always change together
}

// differingColumns returns the columns whose values are not the same in all runs.
func differingColumns(ctx context.Context, list []*Run) ([]*column, error) {
	seed := maphash.MakeSeed()
	known := map[string]*column{}
	for i, r := range list {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for _, e := range r.config {
			c := known[e.Key]
			if c == nil {
				c = &column{key: e.Key, shown: e.Key}
				known[e.Key] = c
			}
			value := maphash.String(seed, e.Value)
			c.runs++
			if n := len(c.values); n == 0 || c.values[n-1] != value {
				c.values = append(c.values, value)
			}
			c.pattern = maphash.Comparable(seed, [3]uint64{c.pattern, uint64(i), value})
		}
	}
	var out []*column
	for key, c := range known {
		if len(c.values) > 1 || c.runs < len(list) {
			slices.Sort(c.values)
			c.values = slices.Compact(c.values)
			if !slices.Contains(places, key) {
				out = append(out, c)
			}
		}
	}
	return out, ctx.Err()
}
