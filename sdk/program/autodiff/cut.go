package autodiff

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// cut chooses the residuals, in the order of their IDs.
//
// It computes a minimum cut of a flow network, like "min-cut rematerialization" in
// training compilers. Every value that does not depend on the cotangent is an edge (a
// pipe), whose capacity is its size in bytes. Pipes of inputs, and of values that the
// forward pass computes anyway, start at the source, so that the backward pass does not
// recompute them. The pipe of a value that may be computed in either pass starts at its
// operands. The pipes of values that the backward pass reads end at the sink. The pipes of
// the minimum cut are the residuals.
func (s *splitter) cut() []program.ID {
	// Marks the values that depend on the cotangent, or on an input of the backward pass alone.
	marks := make([]bool, len(s.p.Inputs))
	for i := range marks[s.inputs:] {
		marks[s.inputs+i] = true
	}
	dependent := transform.Interpret(s.p, marks, func(_ program.ID, _ *program.Node, args []bool) bool {
		return slices.Contains(args, true)
	})
	// Marks the values that depend on constants alone.
	constant := transform.Interpret(s.p, make([]bool, len(s.p.Inputs)),
		func(_ program.ID, _ *program.Node, args []bool) bool { return !slices.Contains(args, false) })
	primal := transform.Needs(s.p, s.p.Outputs[:s.outputs])
	backward := transform.Needs(s.p, s.p.Outputs[s.outputs:])
	n := s.p.NumValues()
	source, sink := 2*n, 2*n+1 // value v is the pipe from 2v to 2v+1
	flow := &network{edges: make([][]int, 2*n+2)}
	read := make([]bool, n)
	for _, o := range s.p.Outputs[s.outputs:] {
		read[o.Value] = true
	}
	for v := range n {
		id := program.ID(v)
		node := s.p.Node(id)
		switch {
		case !backward[v]:
			continue
		case dependent[v]:
			if node != nil {
				for _, a := range node.Args {
					read[a] = true
				}
			}
			continue
		case constant[v]:
			continue
		}
		flow.connect(2*v, 2*v+1, s.weight(id))
		if node == nil || (primal[v] && !free(node, s.p)) {
			flow.connect(source, 2*v, infiniteCapacity)
			continue
		}
		for _, a := range node.Args {
			flow.connect(2*int(a)+1, 2*v, infiniteCapacity)
		}
	}
	for v := range n {
		if read[v] && !dependent[v] {
			flow.connect(2*v+1, sink, infiniteCapacity)
		}
	}
	return flow.cutPipes(source, sink, n)
}

// free reports whether recomputing a value costs next to nothing.
func free(n *program.Node, p *program.Program) bool {
	switch n.Op {
	case program.OpReshape, program.OpBroadcast, program.OpSlice, program.OpTranspose:
		return true
	case program.OpConvert:
		return p.TypeOf(n.Args[0]).DType == program.Bool
	}
	return false
}

// weight returns the cost of keeping a value: its size in bytes, one per bool. Ties
// are broken in favor of an input, then of an output of the forward pass, which may
// be kept anyway, then of anything but a reshape or broadcast.
func (s *splitter) weight(id program.ID) int64 {
	t := s.p.TypeOf(id)
	bytes := t.Size()
	if t.DType != program.Bool {
		bytes *= 4
	}
	const ranks = 4
	price := bytes * ranks
	node := s.p.Node(id)
	if node == nil {
		return price
	}
	for _, o := range s.p.Outputs[:s.outputs] {
		if o.Value == id {
			return price + 1
		}
	}
	if node.Op == program.OpReshape || node.Op == program.OpBroadcast {
		return price + 3
	}
	return price + 2
}

const infiniteCapacity = math.MaxInt64 / 4

// network is a flow network with the edges of each node in an adjacency list; edge
// e and its reverse are e and e^1.
type network struct {
	edges [][]int
	to    []int
	room  []int64 // residual capacity of the edge
}

func (f *network) connect(from, to int, capacity int64) {
	f.edges[from] = append(f.edges[from], len(f.to))
	f.edges[to] = append(f.edges[to], len(f.to)+1)
	f.to = append(f.to, to, from)
	f.room = append(f.room, capacity, 0)
}

// cutPipes returns the pipes, by value ID, of the minimum cut nearest to the sink: of
// equal cuts, the one that keeps later values, which leaves less to recompute.
func (f *network) cutPipes(source, sink, values int) []program.ID {
	f.maximize(source, sink)
	toSink := f.levels(sink, func(e int) bool { return f.room[e^1] > 0 }) // against the edges
	var cut []program.ID
	for v := range values {
		if toSink[2*v] < 0 && toSink[2*v+1] >= 0 && len(f.edges[2*v]) > 0 {
			cut = append(cut, program.ID(v))
		}
	}
	return cut
}

// maximize computes a maximum flow by Dinic's algorithm: blocking flows along
// shortest paths until no augmenting path exists.
func (f *network) maximize(source, sink int) {
	for {
		level := f.levels(source, func(e int) bool { return f.room[e] > 0 })
		if level[sink] < 0 {
			return
		}
		next := make([]int, len(f.edges))
		for f.push(source, sink, infiniteCapacity, level, next) > 0 {
		}
	}
}

// levels returns the distance of each node from first along open edges, -1 if it is
// unreachable.
func (f *network) levels(first int, open func(edge int) bool) []int {
	level := make([]int, len(f.edges))
	for i := range level {
		level[i] = -1
	}
	level[first] = 0
	queue := []int{first}
	for len(queue) > 0 {
		v := queue[0]
		queue = queue[1:]
		for _, e := range f.edges[v] {
			if to := f.to[e]; open(e) && level[to] < 0 {
				level[to] = level[v] + 1
				queue = append(queue, to)
			}
		}
	}
	return level
}

// push sends up to limit along one shortest path; next skips exhausted edges.
func (f *network) push(v, sink int, limit int64, level, next []int) int64 {
	if v == sink {
		return limit
	}
	for ; next[v] < len(f.edges[v]); next[v]++ {
		e := f.edges[v][next[v]]
		to := f.to[e]
		if f.room[e] == 0 || level[to] != level[v]+1 {
			continue
		}
		if sent := f.push(to, sink, min(limit, f.room[e]), level, next); sent > 0 {
			f.room[e] -= sent
			f.room[e^1] += sent
			return sent
		}
	}
	return 0
}
