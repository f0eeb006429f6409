package program_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cage-qat/cage/internal/testing/randprog"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// tight are limits under which every accepted program runs quickly.
var tight = program.Limits{Nodes: 200, Elements: 4096, Total: 1 << 16, Work: 1 << 20,
	Constants: 4096, Linalg: true}

// FuzzValidate changes valid programs at random. Validate must not panic, and accepted programs
// must run without a panic and return the stated types.
func FuzzValidate(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed, seed, uint8(1+seed%8))
	}
	f.Fuzz(func(t *testing.T, programSeed, changeSeed uint64, changes uint8) {
		p := randprog.New(programSeed%500, randprog.Options{Ops: allOps(), Nodes: 12}).Program
		rng := rand.New(rand.NewPCG(changeSeed, programSeed))
		p = copyOf(p)
		for range changes % 16 {
			mutate(rng, p)
		}
		if p.Validate(tight) != nil {
			return
		}
		checkRuns(t, rng, p)
	})
}

func allOps() []program.Op {
	var ops []program.Op
	for _, info := range program.Ops() {
		ops = append(ops, info.Op)
	}
	return ops
}

// checkRuns runs an accepted program and checks its outputs.
func checkRuns(t *testing.T, rng *rand.Rand, p *program.Program) {
	t.Helper()
	in := make([]reference.Tensor, len(p.Inputs))
	for i := range p.Inputs {
		x := reference.Tensor{Type: p.Inputs[i].Type}
		for range x.Type.Size() {
			switch x.Type.DType {
			case program.Float:
				x.Floats = append(x.Floats, rng.NormFloat64())
			case program.Int:
				x.Ints = append(x.Ints, int64(int32(rng.Uint32())))
			case program.Uint:
				x.Ints = append(x.Ints, int64(rng.Uint32()))
			default:
				x.Ints = append(x.Ints, int64(rng.IntN(2)))
			}
		}
		in[i] = x
	}
	out, err := reference.RunArgs(p, in...)
	if err != nil {
		t.Fatalf("%v\n%s", err, p)
	}
	for i, o := range p.Outputs {
		if want := p.TypeOf(o.Value); !out[i].Type.Equal(want) || int64(out[i].Len()) != want.Size() {
			t.Errorf("output %s is %s with %d elements, stated as %s\n%s", o.Name, out[i].Type, out[i].Len(),
				want, p)
		}
	}
	if len(p.String()) == 0 || len(p.Hash()) != 64 {
		t.Error("no text")
	}
	if _, err := transform.Trim(p, p.Outputs[0].Name); err != nil {
		t.Errorf("an accepted program cannot be trimmed: %v\n%s", err, p)
	}
}

// copyOf copies a program deeply enough that mutate does not change the original.
func copyOf(p *program.Program) *program.Program {
	q := &program.Program{Name: p.Name, Inputs: slices.Clone(p.Inputs), Nodes: slices.Clone(p.Nodes),
		Outputs: slices.Clone(p.Outputs)}
	for i := range q.Inputs {
		q.Inputs[i].Type.Shape = slices.Clone(q.Inputs[i].Type.Shape)
	}
	for i := range q.Nodes {
		n := &q.Nodes[i]
		n.Args, n.Type.Shape = slices.Clone(n.Args), slices.Clone(n.Type.Shape)
		for _, list := range lists(&n.Attr) {
			*list = slices.Clone(*list)
		}
	}
	return q
}

func lists(a *program.Attr) []*[]int {
	return []*[]int{&a.Axes, &a.Start, &a.Limit, &a.Stride, &a.LhsContract, &a.RhsContract,
		&a.LhsBatch, &a.RhsBatch}
}

// number returns mostly small, sometimes extreme numbers.
func number(rng *rand.Rand) int {
	switch rng.IntN(8) {
	case 0:
		return []int{-1, math.MaxInt, math.MinInt, 1 << 31, 1<<31 - 1, 1 << 32}[rng.IntN(6)]
	default:
		return rng.IntN(9)
	}
}

func mutateList(rng *rand.Rand, list *[]int) {
	switch n := len(*list); {
	case n == 0 || rng.IntN(4) == 0:
		*list = append(*list, number(rng))
	case rng.IntN(4) == 0:
		*list = (*list)[:n-1]
	default:
		(*list)[rng.IntN(n)] = number(rng)
	}
}

func mutateType(rng *rand.Rand, t *program.Type) {
	if rng.IntN(3) == 0 {
		t.DType = program.DType(rng.IntN(7))
		return
	}
	mutateList(rng, &t.Shape)
}

// mutate makes one change: in an input, an output, or a field of a node.
func mutate(rng *rand.Rand, p *program.Program) {
	switch rng.IntN(12) {
	case 0:
		mutateType(rng, &p.Inputs[rng.IntN(len(p.Inputs))].Type)
		return
	case 1:
		p.Outputs[rng.IntN(len(p.Outputs))].Value = program.ID(rng.IntN(p.NumValues()+4) - 2)
		return
	case 2:
		names := []string{"", "x0", "y0", "a b", "\xff", "é"}
		p.Inputs[rng.IntN(len(p.Inputs))].Name = names[rng.IntN(len(names))]
		return
	}
	if len(p.Nodes) == 0 {
		return
	}
	i := rng.IntN(len(p.Nodes))
	n := &p.Nodes[i]
	switch rng.IntN(8) {
	case 0:
		ops := allOps()
		n.Op = ops[rng.IntN(len(ops))]
	case 1:
		n.Op = program.Op(rng.IntN(130))
	case 2:
		mutateType(rng, &n.Type)
	case 3:
		all := lists(&n.Attr)
		mutateList(rng, all[rng.IntN(len(all))])
	case 4:
		n.Attr.Block = number(rng)
	case 5:
		n.Attr.Ints = append(slices.Clone(n.Attr.Ints), int64(number(rng)))
	case 6:
		if k := len(n.Args); k > 0 && rng.IntN(4) > 0 {
			n.Args[rng.IntN(k)] = program.ID(rng.IntN(len(p.Inputs) + i + 1))
		} else {
			n.Args = append(n.Args, program.ID(rng.IntN(p.NumValues())))
		}
	case 7: // another operand of the same type keeps the program valid more often
		for _, id := range rng.Perm(len(p.Inputs) + i) {
			if k := len(n.Args); k > 0 && p.TypeOf(program.ID(id)).Equal(p.TypeOf(n.Args[0])) {
				n.Args[0] = program.ID(id)
				return
			}
		}
	}
}

// TestRandomProgramsAreValid checks that the random programs are valid.
func TestRandomProgramsAreValid(t *testing.T) {
	for seed := range uint64(300) {
		c := randprog.New(seed, randprog.Options{Ops: allOps()})
		if err := c.Program.Validate(program.Limits{Linalg: true}); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}
