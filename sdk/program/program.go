package program

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
)

// ID numbers a value of a program: the inputs come first, in order, then one
// value for each node.
type ID int32

// Program is a tensor program in SSA form: named inputs, nodes that each define
// one value from earlier ones, and named outputs. A Program that came from
// [Builder.Build] is valid; one from anywhere else must pass
// [Program.Validate] before it is used. Programs are immutable once built.
type Program struct {
	Name    string
	Inputs  []Input
	Nodes   []Node
	Outputs []Output
}

// Input is a named argument.
type Input struct {
	Name string
	Type Type
}

// Output names one value as a result.
type Output struct {
	Name  string
	Value ID
}

// Node applies an operation to earlier values. Type is the type of its result:
// for most operations it follows from the operands, and for constant, iota,
// random_bits, convert, bitcast, reshape and broadcast it also says what is wanted.
type Node struct {
	Op   Op
	Args []ID
	Type Type
	Attr Attr
}

// Attr holds the attributes of an operation. Those that it does not use are empty.
type Attr struct {
	// Axes: the axis of iota and concatenate, the permutation of transpose, the
	// axis mapping of broadcast, the folded axes of reductions.
	Axes []int
	// Start, Limit and Stride of slice, one each per axis.
	Start, Limit, Stride []int
	// LhsContract, RhsContract, LhsBatch and RhsBatch are the axes of dot.
	LhsContract, RhsContract, LhsBatch, RhsBatch []int
	// Block is the block size of hadamard.
	Block int
	// Floats are the elements of a float constant, Ints those of other constants.
	Floats []float64
	Ints   []int64
}

// NumValues is the number of inputs and nodes.
func (p *Program) NumValues() int { return len(p.Inputs) + len(p.Nodes) }

// Node returns the node that defines id, or nil when id is an input.
func (p *Program) Node(id ID) *Node {
	if i := int(id) - len(p.Inputs); i >= 0 && i < len(p.Nodes) {
		return &p.Nodes[i]
	}
	return nil
}

// TypeOf returns the type of a value of the program.
func (p *Program) TypeOf(id ID) Type {
	if int(id) < len(p.Inputs) {
		return p.Inputs[id].Type
	}
	return p.Nodes[int(id)-len(p.Inputs)].Type
}

// Output returns the value of the named output and whether there is one.
func (p *Program) Output(name string) (ID, bool) {
	for _, o := range p.Outputs {
		if o.Name == name {
			return o.Value, true
		}
	}
	return 0, false
}

// Input returns the position of the named input, or -1.
func (p *Program) Input(name string) int {
	return slices.IndexFunc(p.Inputs, func(in Input) bool { return in.Name == name })
}

// Hash is the hex SHA-256 of the program's text form: equal programs have equal hashes.
func (p *Program) Hash() string {
	sum := sha256.Sum256([]byte(p.text(true)))
	return hex.EncodeToString(sum[:])
}

// Trim returns a program with the same inputs and only the named outputs, in that
// order, without the nodes that no output needs.
func (p *Program) Trim(outputs ...string) (*Program, error) {
	wanted := make([]Output, len(outputs))
	for i, name := range outputs {
		id, ok := p.Output(name)
		if !ok {
			return nil, fmt.Errorf("program %q has no output %q", p.Name, name)
		}
		wanted[i] = Output{name, id}
	}
	return p.Extract(p.Name, p.Arguments(), wanted)
}
