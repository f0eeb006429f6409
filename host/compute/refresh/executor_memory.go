package refresh

import (
	"slices"
	"sync"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// memory lends the slices of large results. One that no value has any more is used
// again, also by later executions: fresh memory costs more than many an operation on it.
type memory struct {
	free map[int][][]float64 // by length
	lent map[*float64]bool   // by the first element
}

var memories = sync.Pool{New: func() any { return &memory{map[int][][]float64{}, map[*float64]bool{}} }}

// tensor is a float tensor whose elements are anything.
func (m *memory) tensor(t program.Type) reference.Tensor {
	n := int(t.Size())
	if n == 0 {
		return reference.Tensor{Type: t}
	}
	list := m.free[n]
	if len(list) == 0 {
		list = append(list, make([]float64, n))
	}
	data := list[len(list)-1]
	m.free[n], m.lent[&data[0]] = list[:len(list)-1], true
	return reference.Tensor{Type: t, Floats: data}
}

// drop takes back the memory of x, which is no value any more, if none of the others
// shares it.
func (m *memory) drop(x reference.Tensor, others []reference.Tensor) {
	shares := func(o reference.Tensor) bool { return len(o.Floats) > 0 && &o.Floats[0] == &x.Floats[0] }
	if len(x.Floats) > 0 && m.lent[&x.Floats[0]] && !slices.ContainsFunc(others, shares) {
		delete(m.lent, &x.Floats[0])
		m.free[len(x.Floats)] = append(m.free[len(x.Floats)], x.Floats)
	}
}

// close ends an execution. What is still lent belongs to its results.
func (m *memory) close() {
	clear(m.lent)
	memories.Put(m)
}
