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
	// On the CPU, products of single matrices already run near the peak speed, and the
	// copies cost memory bandwidth: stacking made the updates of Shampoo and SOAP slower,
	// and that of Muon no faster, at every size that was measured. For GPUs nothing has
	// been measured yet; there a small product occupies a fraction of the GPU, and the
	// launch of an operation takes some microseconds.
	ByDevice Stacking = ""
	// Unstacked lowers the program of each job by itself.
	Unstacked Stacking = "side-by-side"
	// Stacked stacks the tensors of jobs with the same program, if it has products, and
	// lowers one program for all of them: batched products take the place of many single ones.
	Stacked Stacking = "together"
)

// mostStacked is the largest number of elements in all inputs of a stack. It bounds the
// memory of the copies. Larger matrices keep a device busy by themselves.
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
	for _, at := range o.Stacking.stacks(programs, engine.OnCPU(g)) {
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

// stacks lists the stacks of programs, by their positions; many have one program only.
func (s Stacking) stacks(programs []*program.Program, onCPU bool) [][]int {
	stacked := s == Stacked || s == ByDevice && !onCPU
	var list [][]int
	open := map[string]int{} // positions in list of stacks that have room, by program
	for i, p := range programs {
		room := 1
		if stacked {
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

// stackSize returns how many tensors a stack with this program may have. It is 1 for a
// program without products: that is a few passes over memory, and a stack gains nothing.
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

// fingerprint is a hash that is equal for programs that differ in their names only.
func fingerprint(p *program.Program) string {
	q := *p
	q.Name = "update"
	return q.Hash()
}

// lowerStacked lowers one program for the jobs at the given positions, which have the
// program of j: it works on the stacks of their inputs.
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
