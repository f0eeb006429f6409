// Package memory keeps slices for reuse, so that steps of a training neither allocate nor clear
// memory.
package memory

import (
	"reflect"
	"sync"
	"time"
)

// A Pool has slices that are not in use. The zero value is empty. It is safe for concurrent use.
type Pool struct {
	mu    sync.Mutex
	free  map[kind][]unused
	swept time.Time
}

type kind struct {
	element reflect.Type
	length  int
}

type unused struct {
	slice any
	since time.Time
}

// keep is how long a slice is kept: longer than a step of a training, unless that takes so long
// that allocating costs nothing beside it.
const keep = time.Minute

// Get returns a slice of the given length, whose elements are undefined.
func (p *Pool) Get(element reflect.Type, length int) any {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := kind{element, length}
	if list := p.free[k]; len(list) > 0 {
		last := list[len(list)-1]
		list[len(list)-1] = unused{}
		p.free[k] = list[:len(list)-1]
		return last.slice
	}
	return reflect.MakeSlice(reflect.SliceOf(element), length, length).Interface()
}

// Put gives back a slice, which must not be used any more.
func (p *Pool) Put(slice any) {
	v, now := reflect.ValueOf(slice), time.Now()
	k := kind{v.Type().Elem(), v.Len()}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free == nil {
		p.free = map[kind][]unused{}
	}
	p.free[k] = append(p.free[k], unused{slice, now})
	if now.Sub(p.swept) > keep/4 {
		p.sweep(now)
	}
}

// sweep drops the slices that have not been used for a while, the first of each list.
func (p *Pool) sweep(now time.Time) {
	p.swept = now
	for k, list := range p.free {
		old := 0
		for old < len(list) && now.Sub(list[old].since) > keep {
			old++
		}
		if old == len(list) {
			delete(p.free, k)
		} else if old > 0 {
			p.free[k] = append([]unused(nil), list[old:]...)
		}
	}
}
