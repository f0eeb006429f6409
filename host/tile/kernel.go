package tile

import (
	"github.com/cage-qat/cage/internal/guard"
	"github.com/cage-qat/cage/sdk/program"
)

// Elements is the number of elements of a tile. A tile of every tensor of an update
// and of its intermediate results fit a processor's first or second cache.
const Elements = 2048

// A Kernel is a program compiled for tiles. It is immutable: several runners may
// execute it at once.
type Kernel struct {
	p          *program.Program
	size       int
	scalars    scalars
	env        []float32 // constants in their places
	reductions []reduction
	phases     [][]instruction
	registers  int // most that a phase needs
	slots      int
	outputs    []place // of the program's outputs
}

// place is where an output comes from: a tensor's slot, or a scalar.
type place struct {
	tensor bool
	scalar int
}

// Compile compiles p, which must be valid, or refuses it with a [*RefusedError].
func Compile(p *program.Program) (k *Kernel, err error) {
	defer guard.Catch(executor, p.Name, &err)
	a, err := analyse(p)
	if err != nil {
		return nil, err
	}
	k = &Kernel{p: a.p, size: int(a.size)}
	last := a.phases()
	for phase := range last + 1 {
		w := a.writePhase(phase, phase == last)
		if len(w.code) == 0 { // scalars only
			break
		}
		k.phases = append(k.phases, w.code)
		k.registers = max(k.registers, w.registers)
		k.slots = max(k.slots, w.slots)
	}
	for _, o := range a.p.Outputs {
		k.outputs = append(k.outputs, a.placeOf(o))
	}
	k.scalars, k.reductions = a.scalars, a.reductions
	k.env = make([]float32, len(a.scalars.list))
	for i, s := range a.scalars.list {
		if s.kind == scalarConstant {
			k.env[i] = s.value
		}
	}
	return k, nil
}

// placeOf is a tensor for every output that is not a scalar, also if it is filled
// with one.
func (a *analysis) placeOf(o program.Output) place {
	r := a.refs[o.Value]
	if a.p.TypeOf(o.Value).Size() == 1 {
		return place{scalar: r.id}
	}
	return place{tensor: true}
}

// Program returns the program as it is executed, with the inputs and outputs of the
// one that was compiled.
func (k *Kernel) Program() *program.Program { return k.p }

// Passes is how often a run walks over the tensors: once, and once more for every
// reduction on whose result other elements depend.
func (k *Kernel) Passes() int { return len(k.phases) }

// phases decides in which phase each reduction is computed and returns the last phase,
// which writes all tensors. A reduction that only outputs and other scalars need
// is left to the last phase, which reads the tensors in any case.
func (a *analysis) phases() int {
	last := 0
	for _, o := range a.p.Outputs {
		if a.placeOf(o).tensor && a.refs[o.Value].kind == aTensor {
			last = max(last, a.nodes[a.refs[o.Value].id].level)
		}
		if a.placeOf(o).tensor && a.refs[o.Value].kind == aScalar {
			last = max(last, a.scalars.list[a.refs[o.Value].id].level)
		}
	}
	for _, d := range a.reductions {
		last = max(last, a.nodes[d.node].level)
	}
	needed := a.neededScalars()
	for i := range a.reductions {
		d := &a.reductions[i]
		d.phase = last
		if needed[d.scalar] {
			d.phase = a.nodes[d.node].level
		}
	}
	a.settle()
	return last
}

// neededScalars are those from which elements of tensors are computed.
func (a *analysis) neededScalars() []bool {
	needed := make([]bool, len(a.scalars.list))
	for _, n := range a.nodes {
		for _, s := range n.s {
			needed[s] = true
		}
	}
	for _, o := range a.p.Outputs {
		if r := a.refs[o.Value]; a.placeOf(o).tensor && r.kind == aScalar {
			needed[r.id] = true
		}
	}
	for i := len(needed) - 1; i >= 0; i-- {
		s := a.scalars.list[i]
		switch {
		case !needed[i]:
		case s.kind == scalarOp:
			for _, j := range s.args {
				needed[j] = true
			}
		case s.kind == scalarReduction:
			// The nodes before it are nodes, whose scalars are needed already.
		}
	}
	return needed
}
