package cpu

import (
	"errors"
	"slices"
	"sync"

	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/internal/recovered"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// executor names this executor in errors.
const executor = "cpu"

// A Pass is a compiled program. It is safe for concurrent use.
type Pass struct {
	p          *program.Program
	rows       int
	tile       int // rows that are computed at once
	unit       int // tiles that are computed by one goroutine, one after the other
	scalars    *scalars
	reductions []reduction
	sweeps     []sweep
	scratch    int // floats, for one row
	inputs     []port
	outputs    []port
	numbers    []int     // index of the scalar for each scalar output; −1 for tensors
	workers    sync.Pool // of *worker, between runs
}

type sweep struct {
	values []location
	code   []instruction
}

// A port is the memory of an input or output.
type port struct {
	name string
	t    program.Type
	at   passes.Storage // of floats and bools
}

const (
	tileElements = 4096      // of the widest value in a tile, if a row is not larger
	tileScratch  = 128 << 10 // bytes of intermediate values in a tile, if those of a row are not more
	unitElements = 1 << 15   // of the widest value in a unit: enough that starting one costs nothing
)

// Compile compiles p, which must be valid, for the given number of rows, or refuses it with a
// [*passes.Refusal]. All inputs and outputs must have elements in every row, except scalars and
// inputs of shape [1, n], which all rows share. stored maps names of inputs and outputs to their
// storage: floats, which are in float32 by default, and bools, whose number is a multiple of eight
// if it is Bits.
func Compile(
	p *program.Program, rows int, stored map[string]passes.Storage,
) (pass *Pass, err error) {
	defer recovered.Catch(executor, p.Name, &err)
	if p, err = transform.Simplify(p); err != nil {
		return nil, err
	}
	return compile(&analysis{p: p, rows: rows}, stored)
}

// CompileFlat compiles p, which must be valid, and chooses the rows itself: runs of elements if all
// tensors have the same number of elements and no operation depends on rows, else rows along the
// last axis. It refuses p with a [*passes.Refusal].
func CompileFlat(p *program.Program, stored map[string]passes.Storage) (pass *Pass, err error) {
	defer recovered.Catch(executor, p.Name, &err)
	if p, err = transform.Simplify(p); err != nil {
		return nil, err
	}
	size, last, block := 1, 1, 1
	for i := range p.NumValues() {
		if t := p.TypeOf(program.ID(i)); t.Size() > int64(size) {
			size, last = int(t.Size()), t.Shape[len(t.Shape)-1]
		}
	}
	for _, n := range p.Nodes {
		block = max(block, n.Attr.Block)
	}
	pass, err = compile(&analysis{p: p, rows: max(1, size/block), flat: true}, stored)
	if _, refused := errors.AsType[*passes.Refusal](err); refused {
		if byRows, err := compile(&analysis{p: p, rows: size / last}, stored); err == nil {
			return byRows, nil
		}
	}
	return pass, err
}

func compile(a *analysis, stored map[string]passes.Storage) (*Pass, error) {
	a.fills, a.spreads, a.scalars = map[int]int{}, map[spread]int{}, &scalars{}
	if err := a.run(); err != nil {
		return nil, err
	}
	pass := &Pass{p: a.p, rows: a.rows, scalars: a.scalars, numbers: a.numbers}
	for _, in := range a.p.Inputs {
		pass.inputs = append(pass.inputs, portOf(in.Name, in.Type, stored))
	}
	for _, o := range a.p.Outputs {
		pass.outputs = append(pass.outputs, portOf(o.Name, a.p.TypeOf(o.Value), stored))
	}
	least := 1
	for _, p := range append(slices.Clone(pass.inputs), pass.outputs...) {
		switch p.at {
		case passes.Float16:
			return nil, a.refusal("%q is stored in binary16", p.name)
		case passes.Bits:
			least = 8 // a byte belongs to one tile
			if p.t.Size()%8 != 0 {
				return nil, a.refusal("%q has %d bools, not a multiple of eight", p.name, p.t.Size())
			}
		}
	}
	last := a.chooseSweeps()
	pass.reductions = a.reductions
	for number := range last + 1 {
		pass.sweeps = append(pass.sweeps, pass.write(a.sweep(number, number == last)))
	}
	widest := 1
	for _, p := range pass.sweeps {
		for _, v := range p.values {
			widest = max(widest, v.size)
		}
	}
	pass.tile = max(least, min(tileElements/widest, tileScratch/4/max(1, pass.scratch), pass.rows))
	if pass.tile > line {
		pass.tile &^= line - 1
	}
	pass.tile = pass.tile / least * least
	pass.unit = max(1, unitElements/(pass.tile*widest))
	return pass, nil
}

// chooseSweeps assigns each reduction to the sweep over the tensors that computes it, and returns
// the number of the last sweep, which writes all tensors. Reductions that no element depends on
// belong to the last sweep, which reads the tensors in any case.
func (a *analysis) chooseSweeps() int {
	last := 0
	for _, id := range a.outputs {
		if id >= 0 {
			last = max(last, a.nodes[id].level)
		}
	}
	for _, d := range a.reductions {
		last = max(last, a.nodes[d.node].level)
	}
	needed := make([]bool, len(a.scalars.list)) // whether elements of tensors depend on the scalar
	for _, n := range a.nodes {
		for _, x := range n.in {
			if x.scalar {
				needed[x.id] = true
			}
		}
	}
	for i, v := range slices.Backward(a.scalars.list) {
		if needed[i] && v.kind == scalarOp {
			for _, x := range v.args {
				needed[x] = true
			}
		}
	}
	for i := range a.reductions {
		d := &a.reductions[i]
		d.phase = last
		if needed[d.scalar] {
			d.phase = a.nodes[d.node].level
		}
		a.scalars.list[d.scalar].level = d.phase + 1
	}
	for i := range a.scalars.list { // in topological order
		v := &a.scalars.list[i]
		if v.kind == scalarOp {
			v.level = 0
			for _, x := range v.args {
				v.level = max(v.level, a.scalars.list[x].level)
			}
		}
	}
	return last
}

// sweep returns the analysis of one sweep, with its reductions appended as nodes. Only the last
// sweep writes tensors.
func (a *analysis) sweep(number int, last bool) *analysis {
	one := *a
	one.nodes, one.outputs = slices.Clone(a.nodes), slices.Clone(a.outputs)
	if !last {
		for o := range one.outputs {
			one.outputs[o] = -1
		}
	}
	for i, d := range a.reductions {
		if d.phase == number {
			one.nodes = append(one.nodes, node{op: opReduce, fold: d.fold, group: i,
				in: []operand{{id: d.node, repeat: 1}}})
		}
	}
	return &one
}

func portOf(name string, t program.Type, stored map[string]passes.Storage) port {
	at := passes.Float32
	if s, ok := stored[name]; ok && (t.DType == program.Float || s == passes.Bits) {
		at = s
	}
	return port{name, t, at}
}
