package triton

import (
	"math/bits"

	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/sdk/program"
)

// A Kernel is a program in the text form of Triton's intermediate representation. Its parameters
// are pointers to the program's inputs, then to its outputs, which are dense tensors in row-major
// order. A bool takes one byte.
type Kernel struct {
	Name string // name of its function in the text
	Text string
	Grid int // number of instances
	// Warps is the number of threads of an instance divided by 32.
	Warps int
}

// The largest number of elements in a row, padded to a power of two, that fits in the registers of
// a kernel's threads.
const (
	LargestRow = 1 << 14
	// LargestLoneRow is for programs that read only one tensor with elements in every row, so that
	// no other tensor needs registers.
	LargestLoneRow = 1 << 15
)

// New translates p, which must be valid, into a kernel over the given number of rows. All inputs
// and outputs must have elements in every row, except scalars and inputs of shape [1, n], which all
// rows share. stored maps names of float inputs and outputs to their storage; the default is
// float32. maxRow is the limit on the elements of a row: [LargestRow] or [LargestLoneRow]. The
// error is a [*passes.Refusal].
func New(p *program.Program, rows, maxRow int, stored map[string]passes.Storage) (*Kernel, error) {
	// If the longest rows can be divided into rows whose length is a power of two, they need no
	// padding. The result is the same if the program has no per-row values.
	longest := 1
	for id := range p.NumValues() {
		if l, ok := passes.LayoutOf(p.TypeOf(program.ID(id)), rows); ok {
			longest = max(longest, l.Size())
		}
	}
	finer := rows * (longest >> bits.TrailingZeros(uint(longest)))
	if finer > rows {
		if k, err := newKernel(p, finer, maxRow, stored); err == nil {
			return k, nil
		}
	}
	return newKernel(p, rows, maxRow, stored)
}

func newKernel(
	p *program.Program, rows, maxRow int, stored map[string]passes.Storage,
) (*Kernel, error) {
	w := &writer{p: p, rows: rows, stored: stored}
	if err := w.setTile(maxRow); err != nil {
		return nil, err
	}
	text, err := w.write()
	if err != nil {
		return nil, err
	}
	return &Kernel{Name: w.name(), Text: text, Grid: w.instances(), Warps: w.warps}, nil
}

func (w *writer) refuse(reason string) error {
	return &passes.Refusal{Program: w.p.Name, Reason: reason}
}

// Divide divides p, which must be valid, into a part that needs whole tensors and a part that needs
// one row at a time.
func Divide(p *program.Program, rows int) (passes.Division, error) {
	return passes.DivideRows(p, rows, isPadded)
}
