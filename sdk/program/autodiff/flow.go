package autodiff

import (
	"math"

	"github.com/cage-qat/cage/sdk/program"
)

const unlimited = math.MaxInt64 / 4

// network is a flow network with the edges of each node in an adjacency list; edge
// e and its reverse are e and e^1.
type network struct {
	edges [][]int
	to    []int
	room  []int64 // what still fits through the edge
}

func newNetwork(nodes int) *network { return &network{edges: make([][]int, nodes)} }

// connect adds an edge of the given capacity.
func (f *network) connect(from, to int, capacity int64) {
	f.edges[from] = append(f.edges[from], len(f.to))
	f.edges[to] = append(f.edges[to], len(f.to)+1)
	f.to = append(f.to, to, from)
	f.room = append(f.room, capacity, 0)
}

// cutPipes returns the pipes, numbered as values, of the minimum cut nearest to
// the sink: with equal sizes the later value is kept, which leaves less to do.
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

// maximize sends as much flow as possible: Dinic's algorithm, blocking flows along
// shortest paths until there is none.
func (f *network) maximize(source, sink int) {
	for {
		level := f.levels(source, func(e int) bool { return f.room[e] > 0 })
		if level[sink] < 0 {
			return
		}
		next := make([]int, len(f.edges))
		for f.push(source, sink, unlimited, level, next) > 0 {
		}
	}
}

// levels gives each node's distance from the first one along open edges, -1 where there is
// no way.
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

// push sends up to limit along one shortest path; next remembers exhausted edges.
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
