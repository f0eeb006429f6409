package factor

import (
	"math"

	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
)

// E4M3 has three bits of mantissa. The distance between neighbours, the unit, is 2⁻⁹ for the smallest numbers and 2⁵ for the
// largest.
const mantissaE4M3, leastUnitE4M3, largestUnitE4M3 = 3, -9, 5

// inE4M3 reports whether a value is computed as [microscaling.RoundE4M3] computes it, from a number v that is not negative:
// clamp(round(v·2⁻ᵘ)·2ᵘ), where u is ⌊log₂v⌋ − 3, clamped. Such a value is a number of E4M3: it is at most 16·2ᵘ, which the format
// has, or is clamped to the upper limit, which the format has, too. The clamps may turn NaN into a number, but into none that is
// positive.
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

// limitsE4M3 reports whether the format has numbers with these limits: the least and the largest u, which are integers, and the upper limit
// of the value, which is 8 to 16 times the largest unit.
func limitsE4M3(least, largest, limit set) bool {
	if len(least.listed) != 1 || len(largest.listed) != 1 || len(limit.listed) != 1 || least.step < 1 || largest.step < 1 {
		return false
	}
	unit := math.Exp2(largest.hi)
	multiple := limit.hi / unit
	return least.lo >= leastUnitE4M3 && largest.hi <= largestUnitE4M3 &&
		limit.hi <= microscaling.LargestE4M3 && multiple <= 16 && multiple >= 8 && multiple == math.Trunc(multiple)
}

// node is the node that defines a value, if it has this operation, else nil.
func node(p *program.Program, id program.ID, op program.Op) *program.Node {
	if n := p.Node(id); n != nil && n.Op == op {
		return n
	}
	return nil
}
