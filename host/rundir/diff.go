package rundir

import (
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

// Diff lists the configuration keys whose values are not the same in all runs.
func Diff(list ...*Run) []Difference {
	values := map[string][]string{}
	var keys []string
	for i, r := range list {
		for _, e := range r.config {
			if values[e.Key] == nil {
				values[e.Key] = make([]string, len(list))
				keys = append(keys, e.Key)
			}
			values[e.Key][i] = e.Value
		}
	}
	slices.Sort(keys)
	var out []Difference
	for _, key := range keys {
		v := values[key]
		if !slices.Contains(places, key) && slices.ContainsFunc(v, func(text string) bool { return text != v[0] }) {
			out = append(out, Difference{key, v})
		}
	}
	return out
}

// Varying returns at most the given number of keys that distinguish runs, those with the
// fewest values first. Hashes are left out, and keys that always change together with
// another. Keys that only some runs have, all with one value, come after the others.
func Varying(list []*Run, most int) []string {
	type key struct {
		name   string
		values []string
		count  int // of different values
	}
	var keys []key
	list = slices.DeleteFunc(slices.Clone(list), func(r *Run) bool { return r.State == Unreadable }) // they have no keys
	for _, d := range Diff(list...) {
		twin := slices.IndexFunc(keys, func(k key) bool { return slices.Equal(k.values, d.Values) })
		switch {
		case strings.HasSuffix(d.Key, "sha256"):
		case twin < 0:
			distinct := slices.DeleteFunc(slices.Clone(d.Values), func(text string) bool { return text == "" })
			slices.Sort(distinct)
			keys = append(keys, key{d.Key, d.Values, len(slices.Compact(distinct))})
		case strings.HasPrefix(keys[twin].name, roles[0]) && d.Key == roles[1]+strings.TrimPrefix(keys[twin].name, roles[0]):
			keys[twin].name = "quantizer." + strings.TrimPrefix(keys[twin].name, roles[0])
		}
	}
	slices.SortStableFunc(keys, func(a, b key) int {
		if (a.count == 1) != (b.count == 1) {
			return b.count - a.count
		}
		return a.count - b.count
	})
	var names []string
	for _, k := range keys[:min(len(keys), most)] {
		names = append(names, k.name)
	}
	return names
}

// roles are the tables of the quantizers in the order of their names.
var roles = []string{"quantizer.activations.", "quantizer.weights."}
