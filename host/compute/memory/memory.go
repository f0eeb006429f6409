// Package memory keeps slices for reuse, so that steps of a training neither allocate nor clear
// memory. The garbage collector frees slices that have not been used for some time.
package memory

import (
	"reflect"
	"sync"
)

// A Pool has slices that are not in use. The zero value is empty. It is safe for concurrent use.
type Pool struct{ kinds sync.Map } // of *sync.Pool, by kind

type kind struct {
	slice  reflect.Type
	length int
}

func (p *Pool) of(slice reflect.Type, length int) *sync.Pool {
	k := kind{slice, length}
	if known, ok := p.kinds.Load(k); ok {
		return known.(*sync.Pool)
	}
	made, _ := p.kinds.LoadOrStore(k, &sync.Pool{})
	return made.(*sync.Pool)
}

// Get returns a []T of the given length, whose elements are undefined.
func Get[T any](p *Pool, length int) any {
	if slice := p.of(reflect.TypeFor[[]T](), length).Get(); slice != nil {
		return slice
	}
	return make([]T, length)
}

// Put gives back a slice, which must not be used any more.
func (p *Pool) Put(slice any) {
	v := reflect.ValueOf(slice)
	p.of(v.Type(), v.Len()).Put(slice)
}
