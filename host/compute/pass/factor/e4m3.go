package factor

import (
	"math"

	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
)

// E4M3 has three bits of mantissa; its numbers are multiples of 2⁻⁹, and the largest of them of 2⁵.
const mantissaE4M3, leastUnitE4M3, largestUnitE4M3 = 3, -9, 5

// inE4M3 tells that a value is a number v that is not negative, rounded to E4M3 as [microscaling.RoundE4M3] does it: to
// multiples of 2ᵘ, where u = ⌊log₂v⌋ − 3 within limits. Then it is at most 16 of these, which is one of the format's numbers,
// or more than the largest of these, for which an upper limit stands that is one. Of NaN the limits may make a number,
// which is not positive.
func inE4M3(p *program.Program, known []set, id program.ID) bool {
	clamp := node(p, id, program.OpClamp)
	if clamp == nil || known[clamp.Args[0]].lo < 0 || known[clamp.Args[1]].hi > 0 {
		return false
	}
	up := node(p, clamp.Args[0], program.OpLdexp)
	if up == nil {
		return false
	}
	unit, round := node(p, up.Args[1], program.OpClamp), node(p, up.Args[0], program.OpRound)
	if unit == nil || round == nil || !limitsE4M3(known[unit.Args[1]], known[unit.Args[2]], known[clamp.Args[2]]) {
		return false
	}
	down, log := node(p, round.Args[0], program.OpLdexp), node(p, unit.Args[0], program.OpAdd)
	if down == nil || log == nil || !known[log.Args[1]].is(-mantissaE4M3) {
		return false
	}
	inverse, exponent := node(p, down.Args[1], program.OpNeg), node(p, log.Args[0], program.OpLogb)
	return inverse != nil && inverse.Args[0] == up.Args[1] && exponent != nil && exponent.Args[0] == down.Args[0]
}

// limitsE4M3 holds the exponents of the units, whole numbers, and the upper limit to what the format has. The limit is among
// the multiples of the largest unit that are at most 16.
func limitsE4M3(least, largest, limit set) bool {
	if len(least.few) != 1 || len(largest.few) != 1 || len(limit.few) != 1 || least.step < 1 || largest.step < 1 {
		return false
	}
	unit := math.Exp2(largest.hi)
	multiple := limit.hi / unit
	return least.lo >= leastUnitE4M3 && largest.hi <= largestUnitE4M3 &&
		limit.hi <= microscaling.LargestE4M3 && multiple <= 16 && multiple >= 8 && multiple == math.Trunc(multiple)
}

// node is the node of a value, nil where it has another operation.
func node(p *program.Program, id program.ID, op program.Op) *program.Node {
	if n := p.Node(id); n != nil && n.Op == op {
		return n
	}
	return nil
}
