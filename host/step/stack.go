package step

import (
	"slices"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/lower"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/vectorize"
)

// Stacking says how the update computes rules whose programs are the same.
type Stacking string

// The ways to compute rules whose programs are the same.
const (
	// ByDevice is Together on devices other than the CPU. On the CPU it leaves programs
	// with products to package matrix, and what that refuses to SideBySide.
	//
	// There, products of separate matrices are computed near the speed of the
	// machine as they are, and copies cost memory bandwidth: stacking made the updates
	// of Shampoo and SOAP slower and that of Muon no faster, at every size that was
	// measured. For GPUs this is a matter of reasoning so far: small products occupy a
	// fraction of one, and every operation costs some microseconds to start.
	ByDevice Stacking = ""
	// SideBySide lowers each rule's program by itself.
	SideBySide Stacking = "side-by-side"
	// Together stacks the tensors of rules that have products and computes them by one
	// program, with one product in the place of many.
	Together Stacking = "together"
)

// mostStacked is the largest number of elements that the inputs of a stack may have
// together. It bounds the memory that copies take; and matrices so large that two of
// them do not go together keep a device busy by themselves.
const mostStacked = 1 << 26

// updates builds the updates of all rules, each from its inputs by name to its outputs
// by name.
func (p *Plan) updates(g *graph.Graph, rules []cage.Rule, in []map[string]*graph.Node) []map[string]*graph.Node {
	out := make([]map[string]*graph.Node, len(rules))
	if p.Update != nil {
		for i, r := range rules {
			out[i] = p.Update(r, in[i])
		}
		return out
	}
	programs := make([]*program.Program, len(rules))
	for i, r := range rules {
		var err error
		if programs[i], err = r.Program(); err != nil {
			panic(err)
		}
	}
	for _, at := range p.Stacking.divide(programs, engine.OnCPU(g)) {
		if len(at) > 1 {
			lowerTogether(g, programs[at[0]], at, in, out)
			continue
		}
		i := at[0]
		out[i] = lower.Lower(g, programs[i], programArgs(programs[i], in[i]))
	}
	return out
}

// divide lists the rules, by position, that are computed together.
func (s Stacking) divide(programs []*program.Program, onCPU bool) [][]int {
	together := s == Together || s == ByDevice && !onCPU
	var list [][]int
	open := map[string]int{} // positions in list of stacks that have room, by program
	for i, p := range programs {
		room := 1
		if together {
			room = stackSize(p)
		}
		if room == 1 {
			list = append(list, []int{i})
			continue
		}
		key := fingerprint(p)
		if at, ok := open[key]; ok && len(list[at]) < room {
			list[at] = append(list[at], i)
			continue
		}
		open[key] = len(list)
		list = append(list, []int{i})
	}
	return list
}

// stackSize is how many tensors may be updated by one such program. It is 1 where
// there is nothing to gain: without products an update is a few passes over memory.
func stackSize(p *program.Program) int {
	if !slices.ContainsFunc(p.Nodes, func(n program.Node) bool { return n.Op == program.OpDot }) {
		return 1
	}
	elements, rank := int64(0), 0
	for _, input := range p.Inputs {
		elements += input.Type.Size()
	}
	for i := range p.NumValues() {
		rank = max(rank, p.TypeOf(program.ID(i)).Rank())
	}
	if rank == program.MaxRank { // there is no axis left to stack along
		return 1
	}
	return int(max(1, mostStacked/elements))
}

// fingerprint is equal for programs that differ in nothing but their names.
func fingerprint(p *program.Program) string {
	q := *p
	q.Name = "update"
	return q.Hash()
}

// lowerTogether computes the rules at the given positions, whose program is p, by one
// program over the stack of their inputs.
func lowerTogether(g *graph.Graph, p *program.Program, at []int, in, out []map[string]*graph.Node) {
	stacked, err := vectorize.Program(p, len(at), cage.Scalars...)
	if err != nil {
		panic(err)
	}
	args := map[string]*graph.Node{}
	for _, input := range p.Inputs {
		each := make([]*graph.Node, len(at))
		for j, i := range at {
			each[j] = in[i][input.Name]
		}
		args[input.Name] = each[0]
		if !isScalar(input.Name) {
			args[input.Name] = graph.Stack(each, 0)
		}
	}
	results := lower.Lower(g, stacked, programArgs(stacked, args))
	for j, i := range at {
		out[i] = map[string]*graph.Node{}
		for name, y := range results {
			out[i][name] = graph.Reshape(graph.Slice(y, graph.AxisElem(j)), y.Shape().Dimensions[1:]...)
		}
	}
}
