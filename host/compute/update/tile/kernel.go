package tile

import (
	"slices"

	"github.com/cage-qat/cage/internal/guard"
	"github.com/cage-qat/cage/sdk/program"
)

// Elements is the number of elements in a tile. The tiles of all tensors of an update and
// of its intermediate results fit into a processor's first- or second-level cache.
const Elements = 2048

// A Kernel is a program compiled for tiles. It is immutable: several runners may
// execute it at once.
type Kernel struct {
	p          *program.Program
	size       int
	scalars    scalars
	env        []float32 // the constants among the scalars; zeros for the others
	reductions []reduction
	phases     [][]instruction // the code of each pass over the tensors
	registers  int             // the largest number that a phase needs
	slots      int
	outputs    []outputRef
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
	k.scalars, k.reductions, k.outputs = a.scalars, a.reductions, a.outputs
	k.env = make([]float32, len(a.scalars.list))
	for i, s := range a.scalars.list {
		if s.kind == scalarConstant {
			k.env[i] = s.value
		}
	}
	return k, nil
}

// phases chooses the phase that computes each reduction and returns the last phase,
// which writes all tensors. Reductions that no element of a tensor depends on belong to the
// last phase, which reads the tensors in any case.
func (a *analysis) phases() int {
	last := 0
	for _, o := range a.outputs {
		if o.tensor >= 0 {
			last = max(last, a.nodes[o.tensor].level)
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
	a.renewLevels()
	return last
}

// neededScalars marks the scalars that elements of tensors depend on.
func (a *analysis) neededScalars() []bool {
	needed := make([]bool, len(a.scalars.list))
	for _, n := range a.nodes {
		for _, s := range n.s {
			needed[s] = true
		}
	}
	for _, i := range slices.Backward(a.scalars.ops) {
		if needed[i] {
			for _, j := range a.scalars.list[i].args {
				needed[j] = true
			}
		}
	}
	return needed
}
