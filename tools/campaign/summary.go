package campaign

import (
	"fmt"
	"io"
	"maps"
	"slices"
)

// tally counts the outcomes of one row of a table.
type tally struct{ experiments, kills, torn, alone, failures int }

func (t *tally) add(r Record) {
	t.experiments++
	if len(r.Failures) > 0 {
		t.failures++
	}
	for _, k := range r.Kills {
		t.count(k)
	}
}

func (t *tally) count(k Killed) {
	t.kills++
	if k.Torn {
		t.torn++
	}
	if !k.All {
		t.alone++
	}
}

// Summarize prints the outcomes as two Markdown tables: by scenario, and by system call.
func Summarize(w io.Writer, records []Record) {
	scenarios, calls, total := map[string]*tally{}, map[string]*tally{}, &tally{}
	at := func(m map[string]*tally, name string) *tally {
		if m[name] == nil {
			m[name] = &tally{}
		}
		return m[name]
	}
	for _, r := range records {
		at(scenarios, r.Scenario).add(r)
		total.add(r)
		for _, k := range r.Kills {
			at(calls, k.Call).count(k)
		}
	}
	fmt.Fprintf(w, "\n| scenario | experiments | kills | caller alone | torn writes | failures |\n|---|---|---|---|---|---|\n")
	row := func(name string, t *tally) {
		fmt.Fprintf(w, "| %s | %d | %d | %d | %d | %d |\n", name, t.experiments, t.kills, t.alone, t.torn, t.failures)
	}
	for _, name := range slices.Sorted(maps.Keys(scenarios)) {
		row("`"+name+"`", scenarios[name])
	}
	row("all", total)
	fmt.Fprintf(w, "\n| system call | kills | caller alone | torn |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		t := calls[name]
		fmt.Fprintf(w, "| `%s` | %d | %d | %d |\n", name, t.kills, t.alone, t.torn)
	}
}
