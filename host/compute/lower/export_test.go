package lower

import (
	"slices"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/fakequant"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// SubjectOf returns the subject of a quantizer's pass.
func SubjectOf(p *program.Program, rows int, joined bool) Subject {
	return subjectOf(p, rows, joined)
}

// Trial returns the trial of the subject's kind with about as many elements.
func (s Subject) Trial(elements int) (engine.Trial, error) { return s.trial(elements) }

// JoinedPasses returns the passes of a source joined with a quantizer, and the storage of their
// floats.
func JoinedPasses(q *fakequant.Quantizer, s *Source) (forward, backward *program.Program,
	memory InMemory, err error) {
	if forward, err = s.before(q.Call(false).Meaning); err != nil {
		return nil, nil, nil, err
	}
	backward, err = s.after(q.Call(true).Adjoint)
	return forward, backward, s.memory(), err
}

// A Crossing is the communication that a program needs if each replica has its rows of some inputs.
type Crossing struct {
	// Gathered lists the operations that need the rows of all replicas, with repetitions.
	Gathered []program.Op
	// Reduced is the number of reductions across replicas.
	Reduced int
}

// Crosses returns the Crossing of p; divided reports whether the replicas divide an input.
func Crosses(
	p *program.Program, replicas int, divided func(input program.Input) bool,
) (Crossing, error) {
	p, err := transform.Simplify(p)
	if err != nil {
		return Crossing{}, err
	}
	inputs := make([]bool, len(p.Inputs))
	for i, in := range p.Inputs {
		inputs[i] = divided(in)
	}
	var c Crossing
	transform.Interpret(p, inputs, func(_ program.ID, n *program.Node, args []bool) bool {
		_, byRows := rowwise(p, n, replicas)
		switch {
		case !slices.Contains(args, true):
			return false
		case byRows:
			return true
		case acrossReplicas[n.Op] != "":
			c.Reduced++
		default:
			c.Gathered = append(c.Gathered, n.Op)
		}
		return false
	})
	return c, nil
}
