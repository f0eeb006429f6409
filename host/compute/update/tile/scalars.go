package tile

import (
	"math"

	"github.com/cage-qat/cage/sdk/program"
)

// scalars are the values of a program that have one element, in an order in which
// each comes after what it is computed from.
type scalars struct {
	list []scalar
	ops  []int // those that are computed
}

type scalarKind uint8

const (
	scalarConstant scalarKind = iota
	scalarInput
	scalarOp
	scalarReduction
)

// scalar is one of them. Bools are 0 and 1.
type scalar struct {
	kind  scalarKind
	value float32                       // of a constant
	input int                           // position of an input
	apply func(x, y, z float32) float32 // of a scalarOp
	args  [3]int                        // 0 for those that apply does not read
	level int                           // 1 + the phase after which it is known; 0 before all phases
}

func (s *scalars) add(v scalar) int {
	s.list = append(s.list, v)
	if v.kind == scalarOp {
		s.ops = append(s.ops, len(s.list)-1)
	}
	return len(s.list) - 1
}

// number is a constant, equal ones being one.
func (s *scalars) number(v float32) int {
	for i, c := range s.list {
		if c.kind == scalarConstant && math.Float32bits(c.value) == math.Float32bits(v) {
			return i
		}
	}
	return s.add(scalar{kind: scalarConstant, value: v})
}

func (s *scalars) one() int { return s.number(1) }

func (s *scalars) constant(a program.Attr) int {
	if len(a.Floats) == 1 {
		return s.number(float32(a.Floats[0]))
	}
	return s.number(float32(a.Ints[0]))
}

// scalarOperation adds an operation whose operands are scalars.
func (a *analysis) scalarOperation(apply func(x, y, z float32) float32, args []ref) ref {
	v := scalar{kind: scalarOp, apply: apply}
	for i, r := range args {
		v.args[i] = r.id
		v.level = max(v.level, a.scalars.list[r.id].level)
	}
	return ref{aScalar, a.scalars.add(v), 0}
}

// settle renews the levels once the phases of all reductions are known.
func (a *analysis) settle() {
	for _, d := range a.reductions {
		a.scalars.list[d.scalar].level = d.phase + 1
	}
	for _, i := range a.scalars.ops {
		v := &a.scalars.list[i]
		v.level = 0
		for _, j := range v.args {
			v.level = max(v.level, a.scalars.list[j].level)
		}
	}
}

// evaluate computes the scalars of a level.
func (s *scalars) evaluate(level int, env []float32) {
	for _, i := range s.ops {
		if v := &s.list[i]; v.level == level {
			env[i] = v.apply(env[v.args[0]], env[v.args[1]], env[v.args[2]])
		}
	}
}
