package triton

import (
	"math/bits"

	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/sdk/program"
)

// A Kernel is a program in the text form of Triton's intermediate representation. Its
// parameters are pointers to the inputs of the program and then to the outputs, each a
// dense tensor in row-major order; a bool takes one byte.
type Kernel struct {
	Name string // name of its function in the text
	Text string
	Grid int // number of instances
	// Warps is the number of threads of an instance, in groups of 32.
	Warps int
}

// The largest number of elements in a row, padded to a power of two, that fit the registers of a
// kernel's threads.
const (
	LargestRow = 1 << 14
	// LargestLoneRow is for programs that read a single tensor with elements in every row, so that
	// no other needs registers.
	LargestLoneRow = 1 << 15
)

// New translates p, which must be valid, into a kernel over the given number of rows. All inputs
// and outputs must have elements in every row, except scalars and inputs of shape [1, n], which all
// rows share. stored maps float inputs and outputs to their storage; the default is float32. A row
// has at most largest elements: [LargestRow] or [LargestLoneRow]. The error is a [*passes.Refusal].
func New(p *program.Program, rows, largest int, stored map[string]passes.Storage) (*Kernel, error) {
	// If the longest rows are divided into equal powers of two, they need no padding. This is
	// equivalent for a program without per-row values.
	longest := 1
	for id := range p.NumValues() {
		if l, ok := passes.LayoutOf(p.TypeOf(program.ID(id)), rows); ok {
			longest = max(longest, l.Size())
		}
	}
	finer := rows * (longest >> bits.TrailingZeros(uint(longest)))
	if finer > rows {
		if k, err := newKernel(p, finer, largest, stored); err == nil {
			return k, nil
		}
	}
	return newKernel(p, rows, largest, stored)
}

func newKernel(
	p *program.Program, rows, largest int, stored map[string]passes.Storage,
) (*Kernel, error) {
	w := &writer{p: p, rows: rows, stored: stored}
	if err := w.setTile(largest); err != nil {
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

// Divide cuts p, which must be valid, into what needs whole tensors and what needs one row at a
// time.
func Divide(p *program.Program, rows int) (passes.Division, error) {
	return passes.DivideRows(p, rows, isPadded)
}
