package sdktest

import (
	"slices"

	"github.com/cage-qat/cage/sdk"
)

// seenScope is what the first element influences: parts of the first row, other rows in the same
// place, or more.
func (in *instance) seenScope(x []float64) string {
	d := in.shape[1]
	marks := in.influence(x, 0)
	column, others := false, false
	for i, m := range marks[d:] {
		column, others = column || m && i%d == 0, others || m && i%d != 0
	}
	switch {
	case others || column && d == 1:
		return sdk.ScopeTensor
	case column:
		return sdk.ScopeColumn
	}
	last := d - 1
	for !marks[last] {
		last--
	}
	if last < d/2 {
		return sdk.ScopeBlock
	}
	return sdk.ScopeRow
}

// scopeShapes are a regular one, one with rows of odd length, and one whose rows are longer than
// blocks are.
var scopeShapes = [][]int{{3, 128}, {4, 33}, {3, 640}}

// checkScope compares what shares a scale with what is claimed. Without a claim a weight may have
// one scale, which is noted; a token of an activation that depends on the other tokens, and
// columns, are mistakes. With settings that a person chose they are noted, too.
func (q *quantizerRun) checkScope(t *trial) {
	for _, v := range slices.Concat(q.space.singles[:1], q.space.claimed) {
		q.checkScopeOf(t, v)
	}
}

func (q *quantizerRun) checkScopeOf(t *trial, v variant) {
	for _, role := range q.roles() {
		name := sdk.ClaimScaleScope
		if role == sdk.RoleKey && v.claims(sdk.ClaimKeyScope) {
			name = sdk.ClaimKeyScope
		}
		value, _ := v.about.Claimed(name, v.values)
		claimed, _ := value.(string)
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
				in.compareScope(in.seenScope(x), claimed, name)
			})
		}
	}
}

func (in *instance) compareScope(seen, claimed string, name sdk.ClaimName) {
	fits := map[string][]string{
		"":              {sdk.ScopeBlock, sdk.ScopeRow},
		sdk.ScopeBlock:  {sdk.ScopeBlock},
		sdk.ScopeRow:    {sdk.ScopeRow},
		sdk.ScopeColumn: {sdk.ScopeColumn},
		sdk.ScopeTensor: {sdk.ScopeTensor},
	}[claimed]
	if in.shape[1] <= 128 { // a block may be as long as the row
		fits = append(fits, map[string][]string{sdk.ScopeBlock: {sdk.ScopeRow}}[claimed]...)
	}
	as := func(seen string) string {
		text := claim(sdk.ClaimScaleScope) + " as " + seen
		if in.asked == sdk.RoleKey {
			text += ", or key_scope if only keys are so"
		}
		return text
	}
	switch {
	case slices.Contains(fits, seen):
	case claimed != "":
		in.t.failf(in.at(), "the levels of an entry depend on its %s; %s claims %s", seen, name, claimed)
	case len(in.settings) > 0 || seen == sdk.ScopeTensor && sdk.Role(in.role) == sdk.RoleWeight:
		in.t.notef("the levels of an entry of a %s depend on its %s with %s", in.role, seen, settingsOrDefaults(in.settings))
	case seen == sdk.ScopeTensor:
		in.t.failf(in.at(), "the levels of a token depend on the other tokens; if that is meant, %s", as(seen))
	default:
		in.t.failf(in.at(), "the levels of an entry depend on its column, and not on its row, the last axis; if that is meant, %s", as(seen))
	}
}
