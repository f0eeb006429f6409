package update

import (
	"slices"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/compute/pass/vectorize"
	"github.com/cage-qat/cage/sdk/program"
)

// Stacking says how a graph computes jobs that have the same program.
type Stacking string

// The ways to compute jobs that have the same program.
const (
	// ByDevice is Unstacked on the CPU and Stacked on other devices.
	//
	// On the CPU, products of separate matrices already run near the speed of the
	// machine, and copies cost memory bandwidth: stacking made the updates of Shampoo and
	// SOAP slower, and that of Muon no faster, at every size that was measured. For GPUs
	// the choice is based on reasoning only, so far: a small product occupies a fraction
	// of the GPU, and starting an operation takes some microseconds.
	ByDevice Stacking = ""
	// Unstacked lowers each program separately.
	Unstacked Stacking = "side-by-side"
	// Stacked stacks the tensors of jobs whose program has products, and computes them
	// by one program, with one product in place of many.
	Stacked Stacking = "together"
)

// mostStacked is the largest number of elements that the inputs of a stack may have
// together. It bounds the memory that copies take; and matrices so large that two of
// them do not go together keep a device busy by themselves.
const mostStacked = 1 << 26

// build builds all jobs, each from its inputs by name to its outputs by name.
func (o Options) build(g *graph.Graph, jobs []Job, in []Nodes) []Nodes {
	out := make([]Nodes, len(jobs))
	if o.Lower != nil {
		for i, j := range jobs {
			out[i] = o.Lower(j, in[i])
		}
		return out
	}
	programs := make([]*program.Program, len(jobs))
	for i, j := range jobs {
		programs[i] = j.Program
	}
	for _, at := range o.Stacking.divide(programs, engine.OnCPU(g)) {
		if len(at) > 1 {
			lowerStacked(g, &jobs[at[0]], at, in, out)
			continue
		}
		i := at[0]
		out[i] = lower.Lower(g, programs[i], arguments(programs[i], in[i]))
	}
	return out
}

// arguments orders inputs as a program declares them.
func arguments(p *program.Program, in Nodes) []*graph.Node {
	args := make([]*graph.Node, len(p.Inputs))
	for i, input := range p.Inputs {
		args[i] = in[input.Name]
	}
	return args
}

// divide lists the programs, by position, that are computed together.
func (s Stacking) divide(programs []*program.Program, onCPU bool) [][]int {
	together := s == Stacked || s == ByDevice && !onCPU
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

// lowerStacked computes the jobs at the given positions, whose program is that of j, by
// one program over the stack of their inputs.
func lowerStacked(g *graph.Graph, j *Job, at []int, in, out []Nodes) {
	p := j.Program
	var shared []string
	for _, input := range p.Inputs {
		if _, bound := j.Inputs[input.Name]; !bound {
			shared = append(shared, input.Name)
		}
	}
	stacked, err := vectorize.Program(p, len(at), shared...)
	if err != nil {
		panic(err)
	}
	args := Nodes{}
	for _, input := range p.Inputs {
		each := make([]*graph.Node, len(at))
		for n, i := range at {
			each[n] = in[i][input.Name]
		}
		args[input.Name] = each[0]
		if !slices.Contains(shared, input.Name) {
			args[input.Name] = graph.Stack(each, 0)
		}
	}
	results := lower.Lower(g, stacked, arguments(stacked, args))
	for n, i := range at {
		out[i] = Nodes{}
		for name, y := range results {
			out[i][name] = graph.Reshape(graph.Slice(y, graph.AxisElem(n)), y.Shape().Dimensions[1:]...)
		}
	}
}
