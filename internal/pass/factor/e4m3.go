package factor

import (
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
)

// E4M3 has three bits of mantissa; neighbours are at least 2⁻⁹ and at most 2⁵ apart.
const mantissaE4M3, leastUnitE4M3, largestUnitE4M3 = 3, -9, 5

// inE4M3 tells that a value is a number v that is not negative, rounded to E4M3 as [microscaling.RoundE4M3] does it: to
// multiples of 2ᵘ, where u = ⌊log₂v⌋ − 3 within limits. Then v is less than 16 of these, and rounded at most 16, so that within
// the limits of the format it is one of its numbers. Of NaN the limits make a number, which may be negative.
func inE4M3(p *program.Program, known []set, id program.ID) bool {
	clamp := node(p, id, program.OpClamp)
	if clamp == nil || known[clamp.Args[1]].lo < -microscaling.LargestE4M3 || known[clamp.Args[2]].hi > microscaling.LargestE4M3 {
		return false
	}
	up := node(p, clamp.Args[0], program.OpLdexp)
	if up == nil || known[clamp.Args[0]].lo < 0 {
		return false
	}
	unit, round := node(p, up.Args[1], program.OpClamp), node(p, up.Args[0], program.OpRound)
	if unit == nil || round == nil || known[unit.Args[1]].lo < leastUnitE4M3 || known[unit.Args[2]].hi > largestUnitE4M3 {
		return false
	}
	down, log := node(p, round.Args[0], program.OpLdexp), node(p, unit.Args[0], program.OpAdd)
	if down == nil || log == nil || !known[log.Args[1]].is(-mantissaE4M3) {
		return false
	}
	inverse, exponent := node(p, down.Args[1], program.OpNeg), node(p, log.Args[0], program.OpLogb)
	return inverse != nil && inverse.Args[0] == up.Args[1] && exponent != nil && exponent.Args[0] == down.Args[0]
}

// node is the node of a value, nil where it has another operation.
func node(p *program.Program, id program.ID, op program.Op) *program.Node {
	if n := p.Node(id); n != nil && n.Op == op {
		return n
	}
	return nil
}
