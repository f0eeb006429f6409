// Package memory gives out slices for the tensors of the CPU device, so that steps of a training
// neither allocate nor clear memory, and so that tensors of different sizes share it in turn.
package memory

import (
	"cmp"
	"reflect"
	"slices"
	"sync"
	"time"
)

// A Pool has memory for slices, in chunks, of which it gives out parts. The zero value is empty. It
// is safe for concurrent use.
type Pool struct {
	mu     sync.Mutex
	arenas map[reflect.Type]*arena // by the type of elements
	swept  time.Time
}

// An arena has the chunks for elements of a type.
type arena struct {
	chunks []*chunk
	used   map[uintptr]block // by the address of the first element
	total  int               // elements
}

type chunk struct {
	memory reflect.Value // a slice
	free   []span        // in ascending order, not adjacent
	since  time.Time     // when something was given back last
}

type span struct{ from, to int } // elements

type block struct {
	*chunk
	span
}

const (
	// keep is how long a chunk that nothing uses is kept: longer than a step of a training, unless
	// that takes so long that allocating costs nothing beside it.
	keep = time.Minute
	// unit is the number of elements of which parts are multiples: a cache line or more.
	unit = 64
	// Chunks grow with what there is, from least to most elements. A slice that is larger than that
	// gets a chunk of its own.
	least, most = 1 << 16, 1 << 22
)

// Get returns a slice of the given length, whose elements are undefined.
func (p *Pool) Get(element reflect.Type, length int) any {
	if length == 0 {
		return reflect.MakeSlice(reflect.SliceOf(element), 0, 0).Interface()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.arenas == nil {
		p.arenas = map[reflect.Type]*arena{}
	}
	a := p.arenas[element]
	if a == nil {
		a = &arena{used: map[uintptr]block{}}
		p.arenas[element] = a
	}
	size := (length + unit - 1) / unit * unit
	c, at := a.find(size)
	if c == nil {
		n := max(size, least, min(most, a.total/4/unit*unit))
		c, a.total = &chunk{memory: reflect.MakeSlice(reflect.SliceOf(element), n, n),
			free: []span{{0, n}}}, a.total+n
		a.chunks = append(a.chunks, c)
	}
	from := c.free[at].from
	if c.free[at].from += size; c.free[at].from == c.free[at].to {
		c.free = slices.Delete(c.free, at, at+1)
	}
	slice := c.memory.Slice3(from, from+length, from+length)
	a.used[slice.Pointer()] = block{c, span{from, from + size}}
	return slice.Interface()
}

// find returns the smallest free span that is large enough; no chunk if there is none.
func (a *arena) find(size int) (best *chunk, at int) {
	most := 0
	for _, c := range a.chunks {
		for i, s := range c.free {
			if n := s.to - s.from; n >= size && (best == nil || n < most) {
				best, at, most = c, i, n
			}
		}
	}
	return best, at
}

// Put gives back a slice, which must not be used any more. A slice of another origin is left to the
// garbage collector.
func (p *Pool) Put(slice any) {
	v, now := reflect.ValueOf(slice), time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.arenas[v.Type().Elem()]
	if a == nil {
		return
	}
	b, ok := a.used[v.Pointer()]
	if !ok {
		return
	}
	delete(a.used, v.Pointer())
	b.give(now)
	if now.Sub(p.swept) > keep/4 {
		p.sweep(now)
	}
}

// give makes a block free again.
func (b block) give(now time.Time) {
	c := b.chunk
	at, _ := slices.BinarySearchFunc(c.free, b.from, func(s span, from int) int {
		return cmp.Compare(s.from, from)
	})
	c.free, c.since = slices.Insert(c.free, at, b.span), now
	if at+1 < len(c.free) && c.free[at].to == c.free[at+1].from {
		c.free[at].to = c.free[at+1].to
		c.free = slices.Delete(c.free, at+1, at+2)
	}
	if at > 0 && c.free[at-1].to == c.free[at].from {
		c.free[at-1].to = c.free[at].to
		c.free = slices.Delete(c.free, at, at+1)
	}
}

// sweep drops the chunks of which nothing has been in use for a while.
func (p *Pool) sweep(now time.Time) {
	p.swept = now
	for _, a := range p.arenas {
		a.chunks = slices.DeleteFunc(a.chunks, func(c *chunk) bool {
			n := c.memory.Len()
			idle := slices.Equal(c.free, []span{{0, n}}) && now.Sub(c.since) > keep
			if idle {
				a.total -= n
			}
			return idle
		})
	}
}
