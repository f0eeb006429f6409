package sdktest

import (
	"slices"

	"github.com/cage-qat/cage/sdk"
)

// Scope is what shares a scale, or another statistic that levels depend on.
type Scope string

// The scopes.
const (
	ScopeBlock  Scope = "block"  // a part of a row
	ScopeRow    Scope = "row"    // a row: an output channel of a weight, a token of an activation
	ScopeColumn Scope = "column" // one entry of each row
	ScopeTensor Scope = "tensor"
)

// Scopes are all scopes.
var Scopes = []Scope{ScopeBlock, ScopeRow, ScopeColumn, ScopeTensor}

// seenScope is what the first element influences: parts of the first row, other rows in the same place, or more.
func (in *instance) seenScope(x []float64) Scope {
	d := in.shape[1]
	marks := in.influence(x, 0)
	column, others := false, false
	for i, m := range marks[d:] {
		column, others = column || m && i%d == 0, others || m && i%d != 0
	}
	switch {
	case others || column && d == 1:
		return ScopeTensor
	case column:
		return ScopeColumn
	}
	last := d - 1
	for !marks[last] {
		last--
	}
	if last < d/2 {
		return ScopeBlock
	}
	return ScopeRow
}

// scopeShapes are a regular one, one with rows of odd length, and one whose rows are longer than blocks are.
var scopeShapes = [][]int{{3, 128}, {4, 33}, {3, 640}}

// checkScope compares what shares a scale with what is claimed. Without a claim a weight may have one scale, which is noted; a
// token of an activation that depends on the other tokens, and columns, are mistakes. With settings that a person chose they are
// noted, too.
func (q *quantizerRun) checkScope(t *trial) {
	v := q.space.singles[0]
	for _, role := range q.roles() {
		claimed, field := q.traits.ScaleScope, "ScaleScope"
		if role == sdk.RoleKey && q.traits.KeyScope != "" {
			claimed, field = q.traits.KeyScope, "KeyScope"
		}
		for _, shape := range scopeShapes {
			s, err := q.ask(v, role, shape...)
			if err != nil {
				continue // other checks report it
			}
			if s.hasMemory() {
				t.notef("not with trained parameters or state")
				continue
			}
			t.run(func() {
				x := normal(17, shape...)
				in := s.instance(t, Oracle{}, x)
				t.announce()
				in.compareScope(in.seenScope(x), claimed, field)
			})
		}
	}
	t.skipUntried("no scale that depends on the data")
}

// compareScope compares what is seen with what a field of the traits claims.
func (in *instance) compareScope(seen, claimed Scope, field string) {
	fits := map[Scope][]Scope{
		"":          {ScopeBlock, ScopeRow},
		ScopeBlock:  {ScopeBlock},
		ScopeRow:    {ScopeRow},
		ScopeColumn: {ScopeColumn},
		ScopeTensor: {ScopeTensor},
	}[claimed]
	if in.shape[1] <= 128 { // a block may be as long as the row
		fits = append(fits, map[Scope][]Scope{ScopeBlock: {ScopeRow}}[claimed]...)
	}
	as := func(seen Scope) string {
		text := claim("ScaleScope") + " as " + string(seen)
		if in.asked == sdk.RoleKey {
			text += ", or KeyScope if only keys are so"
		}
		return text
	}
	switch {
	case slices.Contains(fits, seen):
	case claimed != "":
		in.t.failf(in.at(), "the levels of an entry depend on its %s; %s claims %s", seen, field, claimed)
	case len(in.settings) > 0 || seen == ScopeTensor && sdk.Role(in.role) == sdk.RoleWeight:
		in.t.notef("the levels of an entry of a %s depend on its %s with %s", in.role, seen, settingsOrDefaults(in.settings))
	case seen == ScopeTensor:
		in.t.failf(in.at(), "the levels of a token depend on the other tokens; if that is meant, %s", as(seen))
	default:
		in.t.failf(in.at(), "the levels of an entry depend on its column, and not on its row, the last axis; if that is meant, %s", as(seen))
	}
}
