package reference

import (
	"slices"
	"sync"

	"github.com/cage-qat/cage/sdk/program"
)

// memory is where the results of operations live. What nobody will read any more is
// used again, also by later executions: fresh memory costs more than many an operation
// on it.
type memory struct {
	floats pool[float64]
	ints   pool[int64]
}

var memories = sync.Pool{New: func() any {
	return &memory{floats: newPool[float64](), ints: newPool[int64]()}
}}

// keep notes that a value of the execution is t.
func (m *memory) keep(t Tensor) {
	m.floats.keep(t.Floats)
	m.ints.keep(t.Ints)
}

// forget notes that a value of the execution, t, is not needed any more.
func (m *memory) forget(t Tensor) {
	m.floats.forget(t.Floats)
	m.ints.forget(t.Ints)
}

// sweep takes back what an operation took and did not return.
func (m *memory) sweep() {
	m.floats.sweep()
	m.ints.sweep()
}

// surrender makes t the caller's own: it is copied unless it lives here and is no
// other value.
func (m *memory) surrender(t Tensor) Tensor {
	if t.Type.DType == program.Float && m.floats.surrender(t.Floats) || t.Type.DType != program.Float && m.ints.surrender(t.Ints) {
		t.Type.Shape = slices.Clone(t.Type.Shape)
		return t
	}
	return t.Clone()
}

// release ends an execution.
func (m *memory) release() {
	m.floats.release()
	m.ints.release()
	memories.Put(m)
}

// pool lends slices, told apart by their first elements.
type pool[T any] struct {
	free map[int][][]T // by length
	lent map[*T]*loan[T]
	last []*loan[T] // those of the current operation
}

type loan[T any] struct {
	data   []T
	values int // that are this slice, under one shape or another
}

func newPool[T any]() pool[T] {
	return pool[T]{free: map[int][][]T{}, lent: map[*T]*loan[T]{}}
}

// take lends a slice of n elements, which hold anything.
func (p *pool[T]) take(n int) []T {
	var data []T
	if list := p.free[n]; len(list) > 0 {
		data, p.free[n] = list[len(list)-1], list[:len(list)-1]
	} else {
		data = make([]T, n)
	}
	if n > 0 {
		l := &loan[T]{data: data}
		p.lent[&data[0]] = l
		p.last = append(p.last, l)
	}
	return data
}

func (p *pool[T]) loanOf(data []T) *loan[T] {
	if len(data) == 0 {
		return nil
	}
	return p.lent[&data[0]] // nil for an input and for the elements of a constant
}

func (p *pool[T]) keep(data []T) {
	if l := p.loanOf(data); l != nil {
		l.values++
	}
}

func (p *pool[T]) forget(data []T) {
	if l := p.loanOf(data); l != nil {
		if l.values--; l.values == 0 {
			p.takeBack(l)
		}
	}
}

func (p *pool[T]) takeBack(l *loan[T]) {
	delete(p.lent, &l.data[0])
	p.free[len(l.data)] = append(p.free[len(l.data)], l.data)
}

func (p *pool[T]) sweep() {
	for _, l := range p.last {
		if l.values == 0 {
			p.takeBack(l)
		}
	}
	clear(p.last)
	p.last = p.last[:0]
}

func (p *pool[T]) surrender(data []T) bool {
	l := p.loanOf(data)
	if l == nil || l.values != 1 {
		return false
	}
	delete(p.lent, &data[0])
	return true
}

func (p *pool[T]) release() {
	p.sweep()
	for _, l := range p.lent {
		p.takeBack(l)
	}
}
