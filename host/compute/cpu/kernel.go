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

// A Kernel is a compiled program. It is safe for concurrent use.
type Kernel struct {
	p          *program.Program
	rows       int
	tile       int // rows that are computed at once
	unit       int // tiles that are computed by one goroutine, one after the other
	scalars    *scalars
	reductions []reduction
	passes     []pass
	scratch    int // floats, for one row
	inputs     []port
	outputs    []port
	numbers    []int     // index of the scalar for each scalar output; −1 for tensors
	workers    sync.Pool // of *worker, between runs
}

type pass struct {
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
) (k *Kernel, err error) {
	defer recovered.Catch(executor, p.Name, &err)
	if p, err = transform.Simplify(p); err != nil {
		return nil, err
	}
	return compile(&analysis{p: p, rows: rows}, stored)
}

// CompileFlat compiles p, which must be valid, and chooses the rows itself: runs of elements if all
// tensors have the same number of elements and no operation depends on rows, else rows along the
// last axis. It refuses p with a [*passes.Refusal].
func CompileFlat(p *program.Program, stored map[string]passes.Storage) (k *Kernel, err error) {
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
	k, err = compile(&analysis{p: p, rows: max(1, size/block), flat: true}, stored)
	if _, refused := errors.AsType[*passes.Refusal](err); refused {
		if byRows, err := compile(&analysis{p: p, rows: size / last}, stored); err == nil {
			return byRows, nil
		}
	}
	return k, err
}

func compile(a *analysis, stored map[string]passes.Storage) (*Kernel, error) {
	a.fills, a.spreads, a.scalars = map[int]int{}, map[spread]int{}, &scalars{}
	if err := a.run(); err != nil {
		return nil, err
	}
	k := &Kernel{p: a.p, rows: a.rows, scalars: a.scalars, numbers: a.numbers}
	for _, in := range a.p.Inputs {
		k.inputs = append(k.inputs, portOf(in.Name, in.Type, stored))
	}
	for _, o := range a.p.Outputs {
		k.outputs = append(k.outputs, portOf(o.Name, a.p.TypeOf(o.Value), stored))
	}
	least := 1
	for _, p := range append(slices.Clone(k.inputs), k.outputs...) {
		switch p.at {
		case passes.Float16:
			return nil, a.refusal("%q is stored in binary16", p.name)
		case passes.Bits:
			if least = 8; p.t.Size()%8 != 0 { // a byte belongs to one tile
				return nil, a.refusal("%q has %d bools, not a multiple of eight", p.name, p.t.Size())
			}
		}
	}
	last := a.choosePasses()
	k.reductions = a.reductions
	for number := range last + 1 {
		k.passes = append(k.passes, k.write(a.pass(number, number == last)))
	}
	widest := 1
	for _, p := range k.passes {
		for _, v := range p.values {
			widest = max(widest, v.size)
		}
	}
	k.tile = max(least, min(tileElements/widest, tileScratch/4/max(1, k.scratch), k.rows))
	if k.tile > line {
		k.tile &^= line - 1
	}
	k.tile = k.tile / least * least
	k.unit = max(1, unitElements/(k.tile*widest))
	return k, nil
}

func portOf(name string, t program.Type, stored map[string]passes.Storage) port {
	at := passes.Float32
	if s, ok := stored[name]; ok && (t.DType == program.Float || s == passes.Bits) {
		at = s
	}
	return port{name, t, at}
}
