// Package reference executes programs in plain float64 Go. It is the reference implementation:
// its results define the meaning of a program.
//
// Every operation is written for readability, following the table in package program; matrix
// products, QR and eigenvalues are computed by gonum. Nothing is optimized for speed. All other
// executors are tested against it, and golden files are checked with it. Package program is the
// only package of this repository that it may import.
package reference

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// Run executes p, which must be valid ([program.Program.Validate]), on the given inputs and returns
// its outputs, both by name. It is an error if an input is missing, unknown or not of the declared
// type, or if a factorization does not converge.
func Run(p *program.Program, inputs map[string]Tensor) (map[string]Tensor, error) {
	return runNamed(p, inputs, false)
}

// Run32 is [Run] in the precision of a device: each float input, and the result
// of each operation, is rounded to binary32. Inside one operation (a sum, a
// product of matrices, a hadamard) the computation stays in binary64.
func Run32(p *program.Program, inputs map[string]Tensor) (map[string]Tensor, error) {
	return runNamed(p, inputs, true)
}

// RunArgs is [Run] with inputs and outputs in the order of the program.
func RunArgs(p *program.Program, args ...Tensor) ([]Tensor, error) {
	return run(p, args, false)
}

func runNamed(
	p *program.Program, inputs map[string]Tensor, single bool,
) (map[string]Tensor, error) {
	args := make([]Tensor, len(p.Inputs))
	for i, in := range p.Inputs {
		t, ok := inputs[in.Name]
		if !ok {
			return nil, fmt.Errorf("program %q: input %q (%s) is missing", p.Name, in.Name, in.Type)
		}
		args[i] = t
	}
	for name := range inputs {
		if p.Input(name) < 0 {
			return nil, fmt.Errorf("program %q has no input %q", p.Name, name)
		}
	}
	results, err := run(p, args, single)
	if err != nil {
		return nil, err
	}
	named := make(map[string]Tensor, len(results))
	for i, o := range p.Outputs {
		named[o.Name] = results[i]
	}
	return named, nil
}

func run(p *program.Program, args []Tensor, single bool) ([]Tensor, error) {
	p, err := transform.Expand(p, nil, "")
	if err != nil {
		return nil, err
	}
	if len(args) != len(p.Inputs) {
		return nil, fmt.Errorf("program %q takes %d inputs, got %d", p.Name, len(p.Inputs), len(args))
	}
	round := func(t Tensor) Tensor {
		if single {
			return t.Single()
		}
		return t
	}
	inputs := make([]Tensor, len(args))
	for i, in := range p.Inputs {
		if !args[i].Type.Equal(in.Type) {
			return nil, fmt.Errorf("program %q: input %q is %s, got %s",
				p.Name, in.Name, in.Type, args[i].Type)
		}
		if err := args[i].check(); err != nil {
			return nil, fmt.Errorf("program %q: input %q: %w", p.Name, in.Name, err)
		}
		inputs[i] = round(args[i])
	}
	var failed error
	execute := func(id program.ID, n *program.Node, args []Tensor) Tensor {
		if failed != nil {
			return Tensor{}
		}
		out, err := Apply(n, args...)
		if err != nil {
			failed = fmt.Errorf("program %q: %%%d = %s: %w", p.Name, id, n.Op, err)
		}
		return round(out)
	}
	values := transform.Interpret(p, inputs, execute)
	if failed != nil {
		return nil, failed
	}
	results := make([]Tensor, len(p.Outputs))
	for i, o := range p.Outputs {
		results[i] = values[o.Value].Clone()
	}
	return results, nil
}

// Apply executes one node of a valid program on its operands. The result may share
// memory with them. It fails only if a factorization does not converge.
func Apply(n *program.Node, args ...Tensor) (Tensor, error) {
	if n.Op == program.OpEighValues || n.Op == program.OpEighVectors {
		return eigh(n, args[0])
	}
	if f := operations[n.Op]; f != nil {
		return f(n, args), nil
	}
	return elementwise(n, args), nil
}

func constant(n *program.Node, _ []Tensor) Tensor {
	out := Tensor{Type: n.Type, Floats: n.Attr.Floats, Ints: n.Attr.Ints}
	switch size := int(n.Type.Size()); { // one element fills the whole shape
	case len(out.Floats) == 1:
		out.Floats = slices.Repeat(out.Floats, size)
	case len(out.Ints) == 1:
		out.Ints = slices.Repeat(out.Ints, size)
	}
	return out
}

func iota(n *program.Node, _ []Tensor) Tensor {
	out := zeros(n.Type)
	axis := n.Attr.Axes[0]
	length, step := n.Type.Shape[axis], rowMajor(n.Type.Shape)[axis]
	for i := range out.Len() {
		if index := i / step % length; n.Type.DType == program.Float {
			out.Floats[i] = float64(index)
		} else {
			out.Ints[i] = int64(index)
		}
	}
	return out
}

func randomBits(n *program.Node, args []Tensor) Tensor {
	out := zeros(n.Type)
	key := [2]uint32{uint32(args[0].Ints[0]), uint32(args[0].Ints[1])}
	for i := range out.Ints {
		out.Ints[i] = int64(threefry2x32(key, [2]uint32{uint32(i), 0})[0])
	}
	return out
}

// threefry2x32 computes Threefry-2x32 with 20 rounds: Salmon, Moraes, Dror and Shaw,
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011, §3.3. A round adds,
// rotates and xors; after every four rounds the next pair of key words is added,
// together with the number of key injections so far.
func threefry2x32(key, counter [2]uint32) [2]uint32 {
	const parity = 0x1BD11BDA // makes the third key word nonzero for a zero key
	rotations := [8]int{13, 15, 26, 6, 17, 29, 16, 24}
	words := [3]uint32{key[0], key[1], parity ^ key[0] ^ key[1]}
	x0, x1 := counter[0]+words[0], counter[1]+words[1]
	for round := range 20 {
		x0 += x1
		x1 = bits.RotateLeft32(x1, rotations[round%8]) ^ x0
		if round%4 == 3 {
			injection := round/4 + 1
			x0 += words[injection%3]
			x1 += words[(injection+1)%3] + uint32(injection)
		}
	}
	return [2]uint32{x0, x1}
}
