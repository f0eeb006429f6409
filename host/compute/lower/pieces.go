package lower

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/cpu"
	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/simplify"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// In float32 the CPU computes programs over rows in pieces. Operations that have the same bits in package cpu as in a graph make
// one pass through the caches, as far as they follow on each other. What lies between such passes stays in the graph: sums and
// rotations, whose order of additions is another one there, exponentials, and what needs whole tensors.

// hasPieces reports whether a device, which may be nil, computes programs over rows in pieces.
func hasPieces(d *engine.Device) bool {
	return d != nil && d.Precision() == device.Float32 && d.Kernels() == device.AutoKernels && d.HasNatives()
}

// inexact has the operations whose floats have other bits in package cpu.
var inexact = map[program.Op]bool{
	program.OpExp: true, program.OpExpm1: true, program.OpLog: true, program.OpLog1p: true, program.OpTanh: true, program.OpPow: true,
	program.OpReduceSum: true, program.OpHadamard: true,
}

// class says where a value is computed.
type class uint8

const (
	anywhere class = iota // in every piece that reads it: inputs, constants, scalars, other shapes of the same elements
	byRow                 // in a pass over rows
	byNode                // in the graph
)

// pieces are a program divided into stages. A stage is a pass over rows, and the nodes of the graph that follow on it.
type pieces struct {
	p    *program.Program
	rows int
	at   []place
	kept []bool // values by row that nodes read, nodes that rows read, and what outputs read of both
}

// place says where a value is computed.
type place struct {
	class      class
	row, nodes int // the last stages whose pass, and whose nodes, it needs; −1: none
}

// piecesOf divides a simplified program.
func piecesOf(p *program.Program, count int) *pieces {
	s := &pieces{p: p, rows: count, kept: make([]bool, p.NumValues())}
	inputs := slices.Repeat([]place{{anywhere, -1, -1}}, len(p.Inputs))
	s.at = inputs
	for i := range p.Nodes {
		s.at = append(s.at, s.place(program.ID(len(p.Inputs)+i)))
	}
	for i := range p.Nodes {
		id := program.ID(len(p.Inputs) + i)
		if c := s.at[id].class; c != anywhere {
			for _, a := range p.Nodes[i].Args {
				s.keep(a, c)
			}
		}
	}
	for _, o := range p.Outputs {
		s.keep(o.Value, anywhere)
	}
	return s
}

// place is that of a node whose operands have theirs.
func (s *pieces) place(id program.ID) place {
	n := s.p.Node(id)
	out := place{s.class(id, n), -1, -1}
	for _, a := range n.Args {
		out.row, out.nodes = max(out.row, s.at[a].row), max(out.nodes, s.at[a].nodes)
	}
	switch out.class {
	case byRow:
		return place{byRow, max(0, out.row, out.nodes+1), -1}
	case byNode:
		return place{byNode, -1, max(0, out.row, out.nodes)}
	}
	return out
}

func (s *pieces) class(id program.ID, n *program.Node) class {
	scalar := func(id program.ID) bool { return s.p.TypeOf(id).Size() == 1 }
	switch {
	case inexact[n.Op]:
		return byNode
	case n.Op == program.OpConstant && len(n.Attr.Floats)+len(n.Attr.Ints) == 1, n.Op == program.OpReshape, n.Op == program.OpStopGradient:
		return anywhere
	case scalar(id) && !slices.ContainsFunc(n.Args, func(a program.ID) bool { return !scalar(a) }) && n.Op != program.OpRandomBits:
		return anywhere
	case s.taken(id, n):
		return byRow
	}
	return byNode
}

// taken reports whether package cpu takes a node.
func (s *pieces) taken(id program.ID, n *program.Node) bool {
	var from []program.Output
	for i, a := range n.Args {
		constant := s.p.Node(a) != nil && s.p.Node(a).Op == program.OpConstant
		if !constant && !slices.ContainsFunc(from, func(o program.Output) bool { return o.Value == a }) {
			from = append(from, program.Output{Name: fmt.Sprint("operand", i), Value: a})
		}
	}
	one, err := transform.Extract(s.p, s.p.Name, from, []program.Output{{Name: "result", Value: id}})
	if err != nil {
		panic(err)
	}
	_, err = cpu.Compile(one, s.rows, nil)
	return err == nil
}

// keep marks what is read of a value by another one of the given class, or by an output.
func (s *pieces) keep(id program.ID, by class) {
	switch c := s.at[id].class; {
	case c == anywhere && int(id) >= len(s.p.Inputs):
		for _, a := range s.p.Node(id).Args {
			s.keep(a, by)
		}
	case c != by && c != anywhere:
		s.kept[id] = true
	}
}

// keptOf lists the values of a class that a stage computes for others.
func (s *pieces) keptOf(c class, stage int) (list []program.Output) {
	for id, p := range s.at {
		if s.kept[id] && p.class == c && max(p.row, p.nodes) == stage {
			list = append(list, program.Output{Name: fmt.Sprint("piece.", id), Value: program.ID(id)})
		}
	}
	return list
}

// inPieces is [Lower] on a device with pieces, for float32.
func inPieces(g *graph.Graph, p *program.Program, count int, inputs []*graph.Node) map[string]*graph.Node {
	p, err := simplify.Program(p)
	if err != nil {
		panic(err)
	}
	s := piecesOf(p, count)
	last := -1
	for id, at := range s.at {
		if s.kept[id] {
			last = max(last, at.row, at.nodes)
		}
	}
	known := transform.Arguments(p)
	nodes := slices.Clone(inputs)
	compute := func(to []program.Output, run func(part *program.Program, in []*graph.Node) map[string]*graph.Node) map[string]*graph.Node {
		part, in := s.part(known, nodes, to)
		return run(part, in)
	}
	for stage := range last + 1 {
		for _, c := range []class{byRow, byNode} {
			to := s.keptOf(c, stage)
			if len(to) == 0 {
				continue
			}
			out := compute(to, func(part *program.Program, in []*graph.Node) map[string]*graph.Node {
				if c == byRow {
					if out, ok := pass(part, count, in); ok {
						return out
					}
				}
				return Lower(g, part, in)
			})
			for _, o := range to {
				known, nodes = append(known, o), append(nodes, out[o.Name])
			}
		}
	}
	return compute(p.Outputs, func(part *program.Program, in []*graph.Node) map[string]*graph.Node { return Lower(g, part, in) })
}

// part is the program that computes some values from those that are known, of which it has the ones that it reads, with their nodes.
func (s *pieces) part(known []program.Output, nodes []*graph.Node, to []program.Output) (*program.Program, []*graph.Node) {
	whole, err := transform.Extract(s.p, s.p.Name, known, to)
	if err != nil {
		panic(err)
	}
	needed := transform.Needs(whole, whole.Outputs)
	var from []program.Output
	var in []*graph.Node
	for i, a := range transform.Arguments(whole) {
		if needed[a.Value] {
			from, in = append(from, a), append(in, nodes[i])
		}
	}
	part, err := transform.Extract(whole, s.p.Name, from, whole.Outputs)
	if err != nil {
		panic(err)
	}
	return part, in
}

// pass computes a part by package cpu. ok is false if that does not take it. Gradients with respect to the outputs can be taken.
func pass(part *program.Program, count int, inputs []*graph.Node) (outputs map[string]*graph.Node, ok bool) {
	call, err := rowsCall(part, count, nil)
	if refusal := (*cpu.Refusal)(nil); errors.As(err, &refusal) || len(inputs) == 0 {
		return nil, false
	}
	if err != nil {
		panic(err)
	}
	outputs = map[string]*graph.Node{}
	for i, node := range call(inputs) {
		outputs[part.Outputs[i].Name] = graph.Identity(node)
	}
	return outputs, true
}

// isSingle reports whether all floats of inputs are float32.
func isSingle(inputs []*graph.Node) bool {
	return !slices.ContainsFunc(inputs, func(x *graph.Node) bool { return x.DType().IsFloat() && x.DType() != dtypes.Float32 })
}
