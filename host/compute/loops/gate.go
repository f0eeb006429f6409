package loops

// HasGates reports whether [Gate] and [GateAdjoints] are faster than elementwise operations.
func HasGates() bool { return hasAVX512 }

// Gate sets dst to silu(a)·b, where silu(a) = a/(1 + e⁻ᵃ) (Shazeer, "GLU Variants Improve
// Transformer", 2020). Everything is stored in bfloat16 and computed in float32. The slices have
// the same length.
func Gate(dst, a, b []uint16) {
	i := 0
	if hasAVX512 {
		i = gate(dst, a, b)
	}
	for ; i < len(dst); i++ {
		x := wide(a[i])
		dst[i] = short(float32(x*logistic(x)) * wide(b[i]))
	}
	done()
}

// GateAdjoints sets da and db to the adjoints of a and b, given d, that of [Gate]'s result.
func GateAdjoints(da, db, a, b, d []uint16) {
	i := 0
	if hasAVX512 {
		i = gateAdjoints(da, db, a, b, d)
	}
	for ; i < len(d); i++ {
		x, y, dy := wide(a[i]), wide(b[i]), wide(d[i])
		sigma := logistic(x)
		slope := sigma * float32(float32(x*(1-sigma))+1)
		da[i], db[i] = short(float32(dy*y)*slope), short(dy*float32(x*sigma))
	}
	done()
}

func logistic(x float32) float32 { return 1 / (exp(-x) + 1) }

// Gates are the products of silu(a) and b, element by element, all stored in bfloat16 ([Gate]).
type Gates struct{ A, B []uint16 }

// Values writes the products.
func (g Gates) Values(to []uint16, parallel Parallel) {
	divide(len(g.A), 4, parallel, func(from, end int) {
		Gate(to[from:end], g.A[from:end], g.B[from:end])
	})
}

// Adjoints writes the adjoints of a and b, given d, the adjoint of the products.
func (g Gates) Adjoints(da, db, d []uint16, parallel Parallel) {
	divide(len(g.A), 4, parallel, func(from, end int) {
		GateAdjoints(da[from:end], db[from:end], g.A[from:end], g.B[from:end], d[from:end])
	})
}
