package autodiff

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// cut chooses the residuals, in the order of their IDs.
//
// It computes a minimum cut of a flow network, like "min-cut rematerialization" in training
// compilers. Every value that does not depend on the cotangent is an edge (a pipe), whose capacity
// is its size in bytes. Pipes of inputs, and of values that the forward pass computes anyway, start
// at the source, so that the backward pass does not recompute them. The pipe of a value that may be
// computed in either pass starts at its operands. The pipes of values that the backward pass reads
// end at the sink. The pipes of the minimum cut are the residuals.
func (s *splitter) cut() []program.ID {
	// Values that depend on the cotangent, or on an input that only the backward pass has.
	dependent := transform.Depends(s.p, func(input int) bool { return input >= s.inputs })
	varies := transform.Depends(s.p, func(int) bool { return true })
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
		case !varies[v]:
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

// free reports whether recomputing a value costs almost nothing.
func free(n *program.Node, p *program.Program) bool {
	switch n.Op {
	case program.OpReshape, program.OpBroadcast, program.OpSlice, program.OpTranspose:
		return true
	case program.OpConvert:
		return p.TypeOf(n.Args[0]).DType == program.Bool
	}
	return false
}

// weight returns the cost of keeping a value: its size in bytes (1 per bool). Ties are broken in
// favor of inputs, then outputs of the forward pass, then anything but a reshape or broadcast.
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

// network is a flow network with the edges of each node in an adjacency list; the
// reverse of edge e is edge e^1.
type network struct {
	edges    [][]int
	to       []int
	residual []int64 // residual capacity of each edge
}

func (f *network) connect(from, to int, capacity int64) {
	f.edges[from] = append(f.edges[from], len(f.to))
	f.edges[to] = append(f.edges[to], len(f.to)+1)
	f.to = append(f.to, to, from)
	f.residual = append(f.residual, capacity, 0)
}

// cutPipes returns the pipes, by value ID, of the minimum cut nearest to the sink: of
// equal cuts, the one that keeps later values, which leaves less to recompute. The maximum
// flow is found along shortest augmenting paths (Edmonds and Karp, 1972).
func (f *network) cutPipes(source, sink, values int) []program.ID {
	for {
		reached := f.search(source, func(e int) bool { return f.residual[e] > 0 })
		if reached[sink] < 0 {
			break
		}
		limit := int64(infiniteCapacity)
		for v := sink; v != source; v = f.to[reached[v]^1] {
			limit = min(limit, f.residual[reached[v]])
		}
		for v := sink; v != source; v = f.to[reached[v]^1] {
			f.residual[reached[v]] -= limit
			f.residual[reached[v]^1] += limit
		}
	}
	toSink := f.search(sink, func(e int) bool { return f.residual[e^1] > 0 }) // against the edges
	var cut []program.ID
	for v := range values {
		if toSink[2*v] < 0 && toSink[2*v+1] >= 0 && len(f.edges[2*v]) > 0 {
			cut = append(cut, program.ID(v))
		}
	}
	return cut
}

// search traverses the network breadth-first from a node along open edges. It returns the edge by
// which each node was reached, or -1 if it was not reached; for the first node, 0.
func (f *network) search(first int, open func(edge int) bool) []int {
	reached := slices.Repeat([]int{-1}, len(f.edges))
	reached[first] = 0
	queue := []int{first}
	for len(queue) > 0 {
		v := queue[0]
		queue = queue[1:]
		for _, e := range f.edges[v] {
			if to := f.to[e]; open(e) && reached[to] < 0 {
				reached[to] = e
				queue = append(queue, to)
			}
		}
	}
	return reached
}
