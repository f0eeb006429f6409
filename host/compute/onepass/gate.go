package onepass

import "github.com/cage-qat/cage/host/compute/loops"

// A Gate is the product of silu(a) and b, element by element, all stored in bfloat16 ([loops.Gate]).
type Gate struct{ A, B []uint16 }

// HasGates reports whether gates are faster here than as programs over rows.
func HasGates() bool { return loops.HasGates() }

// Values writes the products.
func (g Gate) Values(to []uint16, parallel func(n int, f func(i int))) {
	g.each(parallel, func(from, end int) { loops.Gate(to[from:end], g.A[from:end], g.B[from:end]) })
}

// Adjoints writes those of a and b, given d, that of the products.
func (g Gate) Adjoints(da, db, d []uint16, parallel func(n int, f func(i int))) {
	g.each(parallel, func(from, end int) {
		loops.GateAdjoints(da[from:end], db[from:end], g.A[from:end], g.B[from:end], d[from:end])
	})
}

func (g Gate) each(parallel func(n int, f func(i int)), f func(from, end int)) {
	parallel((len(g.A)+taskElements-1)/taskElements, func(i int) {
		f(i*taskElements, min((i+1)*taskElements, len(g.A)))
	})
}
