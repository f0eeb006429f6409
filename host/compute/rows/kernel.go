package rows

import (
	"fmt"

	"github.com/cage-qat/cage/host/compute/pass/byrow"
	"github.com/cage-qat/cage/internal/guard"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/simplify"
)

// executor is the name of this executor in errors.
const executor = "rows"

// A Kernel is a program compiled for rows. It is safe for concurrent use.
type Kernel struct {
	p       *program.Program
	rows    int
	tile    int // rows that are computed at once
	scalars scalars
	values  []place
	code    []instruction
	scratch int // floats, for one row
	inputs  []port
	outputs []port
	workers pool
}

// A port is an input or output in memory.
type port struct {
	name  string
	dtype program.DType
	at    byrow.Storage // of a float
	size  int           // elements
}

// A Refusal says why this package does not execute a program. The program itself is not at fault.
type Refusal struct {
	Program string
	Node    string // empty if the reason is not a single operation
	Reason  string
}

// Error names the program, the operation and the reason.
func (r *Refusal) Error() string {
	if r.Node == "" {
		return fmt.Sprintf("%s is not computed row by row: %s", r.Program, r.Reason)
	}
	return fmt.Sprintf("%s is not computed row by row: %s: %s", r.Program, r.Node, r.Reason)
}

// Divide cuts p, which must be valid, into what needs whole tensors and what needs one row at a time.
func Divide(p *program.Program, rows int) (byrow.Division, error) {
	return byrow.Divide(p, rows, func(byrow.Layout) bool { return true })
}

// Sizes of what is computed at once.
const (
	tileElements = 4096      // of the widest value in a tile, if a row is not larger
	tileScratch  = 128 << 10 // bytes of intermediate values in a tile, if those of a row are not more
	taskElements = 1 << 15   // of the widest value in a task: enough that starting one costs nothing
)

// Compile compiles p, which must be valid, for the given number of rows, or refuses it with a [*Refusal]. All inputs and outputs
// must have a part in every row, except scalars and inputs of shape [1, n], which all rows share. stored says, by name, how
// float inputs and outputs are stored; those without an entry are float32.
func Compile(p *program.Program, rows int, stored map[string]byrow.Storage) (k *Kernel, err error) {
	defer guard.Catch(executor, p.Name, &err)
	if p, err = simplify.Program(p); err != nil {
		return nil, err
	}
	a := &analysis{p: p, rows: rows, fills: map[int]int{}, spreads: map[spread]int{}}
	if err := a.run(); err != nil {
		return nil, err
	}
	k = &Kernel{p: p, rows: rows}
	for _, in := range p.Inputs {
		k.inputs = append(k.inputs, portOf(in.Name, in.Type, stored))
	}
	for _, o := range p.Outputs {
		k.outputs = append(k.outputs, portOf(o.Name, p.TypeOf(o.Value), stored))
	}
	for _, in := range k.inputs {
		if in.at == byrow.Int8 {
			return nil, &Refusal{Program: p.Name, Reason: fmt.Sprintf("input %q is stored in 8 bits", in.name)}
		}
	}
	for _, o := range k.outputs {
		if o.at == byrow.Rounded {
			return nil, &Refusal{Program: p.Name, Reason: fmt.Sprintf("output %q is stored as inputs are read", o.name)}
		}
	}
	a.fuse()
	a.fuseQuantizers(k.outputs)
	k.scalars = a.scalars
	w := &writer{analysis: a, k: k}
	w.write()
	widest := 1
	for _, v := range k.values {
		widest = max(widest, v.size)
	}
	k.tile = max(1, min(tileElements/widest, tileScratch/4/max(1, k.scratch), rows))
	return k, nil
}

func portOf(name string, t program.Type, stored map[string]byrow.Storage) port {
	at := byrow.Float32
	if s, ok := stored[name]; ok && t.DType == program.Float {
		at = s
	}
	return port{name, t.DType, at, int(t.Size())}
}
