package tokenizer

import (
	"container/heap"
	"math"
	"slices"
)

// wordMerger joins symbols. It keeps memory between words.
type wordMerger struct {
	ids   []int32
	pairs []merge // pairs[i] is what ids[i] and ids[i+1] become
	list  []symbol
	queue candidates
}

// fewSymbols is how many symbols are joined without a heap.
const fewSymbols = 64

// noMerge is the merge of a pair that is not joined.
var noMerge = merge{rank: math.MaxInt32}

// merge joins pairs in the order of their rank, and from left to right among equal
// ranks, until none is left, and appends what is left.
func (m *bpe) merge(dst []int32, g *wordMerger) []int32 {
	if len(g.ids) > fewSymbols {
		return m.mergeMany(dst, g)
	}
	g.pairs = g.pairs[:0]
	for i := 1; i < len(g.ids); i++ {
		g.pairs = append(g.pairs, m.pair(g.ids[i-1], g.ids[i]))
	}
	for len(g.pairs) > 0 {
		at := 0
		for i := range g.pairs {
			if g.pairs[i].rank < g.pairs[at].rank {
				at = i
			}
		}
		if g.pairs[at].rank == math.MaxInt32 {
			break
		}
		g.ids[at] = g.pairs[at].id
		g.ids = append(g.ids[:at+1], g.ids[at+2:]...)
		g.pairs = append(g.pairs[:at], g.pairs[at+1:]...)
		if at < len(g.pairs) {
			g.pairs[at] = m.pair(g.ids[at], g.ids[at+1])
		}
		if at > 0 {
			g.pairs[at-1] = m.pair(g.ids[at-1], g.ids[at])
		}
	}
	return append(dst, g.ids...)
}

// pair returns what two symbols become.
func (m *bpe) pair(left, right int32) merge {
	if joined, ok := m.merges[pairKey(left, right)]; ok {
		return joined
	}
	return noMerge
}

func pairKey(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) }

// symbol is a node of a doubly linked list that lies in a slice. A symbol that
// was joined to its left neighbour has noID.
type symbol struct {
	id         int32
	prev, next int32
}

// mergeMany is merge with a heap, in O(n log n).
func (m *bpe) mergeMany(dst []int32, g *wordMerger) []int32 {
	g.list, g.queue = slices.Grow(g.list[:0], len(g.ids)), slices.Grow(g.queue[:0], len(g.ids))
	for i, id := range g.ids {
		g.list = append(g.list, symbol{id, int32(i) - 1, int32(i) + 1})
	}
	for i := 0; i+1 < len(g.ids); i++ {
		if joined := m.pair(g.ids[i], g.ids[i+1]); joined != noMerge {
			g.queue = append(g.queue, candidate{joined, int32(i)})
		}
	}
	heap.Init(&g.queue)
	for len(g.queue) > 0 {
		m.apply(g, heap.Pop(&g.queue).(candidate))
	}
	for i := range g.list {
		if g.list[i].id != noID {
			dst = append(dst, g.list[i].id)
		}
	}
	return dst
}

// apply joins the pair of a candidate, unless an earlier merge has changed a side of it.
func (m *bpe) apply(g *wordMerger, top candidate) {
	left := &g.list[top.at]
	if left.id == noID || int(left.next) >= len(g.list) {
		return
	}
	right := &g.list[left.next]
	if joined := m.pair(left.id, right.id); joined.id != top.id || joined == noMerge {
		return
	}
	left.id, right.id = top.id, noID
	left.next = right.next
	if int(left.next) < len(g.list) {
		g.list[left.next].prev = top.at
	}
	m.push(g, left.prev)
	m.push(g, top.at)
}

// push queues the pair that begins at a symbol.
func (m *bpe) push(g *wordMerger, at int32) {
	if at < 0 || int(g.list[at].next) >= len(g.list) {
		return
	}
	if joined := m.pair(g.list[at].id, g.list[g.list[at].next].id); joined != noMerge {
		heap.Push(&g.queue, candidate{joined, at})
	}
}

// candidate is a possible merge of the symbol at index at with its successor.
type candidate struct {
	merge
	at int32
}

type candidates []candidate

func (q candidates) Len() int { return len(q) }
func (q candidates) Less(i, j int) bool {
	if q[i].rank != q[j].rank {
		return q[i].rank < q[j].rank
	}
	return q[i].at < q[j].at
}
func (q candidates) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *candidates) Push(x any)   { *q = append(*q, x.(candidate)) }
func (q *candidates) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	*q = (*q)[:last]
	return x
}
