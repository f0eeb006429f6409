package loops

// HasGates reports whether [Gates] are faster than elementwise operations.
func HasGates() bool { return hasAVX512 }

// Gates are the products silu(a)·b, where silu(a) = a/(1 + e⁻ᵃ) (Shazeer, "GLU Variants Improve
// Transformer", 2020). Everything is stored in bfloat16 and computed in float32.
type Gates struct{ A, B []uint16 }

// Values writes the products.
func (g Gates) Values(to []uint16, parallel Parallel) {
	divide(len(g.A), 4, parallel, func(from, end int) {
		i := from
		if hasAVX512 {
			i += gate(to[from:end], g.A[from:end], g.B[from:end])
		}
		for ; i < end; i++ {
			x := wide(g.A[i])
			to[i] = short(float32(x*logistic(x)) * wide(g.B[i]))
		}
		done()
	})
}

// Adjoints writes the adjoints of a and b, given d, the adjoint of the products.
func (g Gates) Adjoints(da, db, d []uint16, parallel Parallel) {
	divide(len(g.A), 4, parallel, func(from, end int) {
		i := from
		if hasAVX512 {
			i += gateAdjoints(da[from:end], db[from:end], g.A[from:end], g.B[from:end], d[from:end])
		}
		for ; i < end; i++ {
			x, y, dy := wide(g.A[i]), wide(g.B[i]), wide(d[i])
			sigma := logistic(x)
			slope := sigma * float32(float32(x*(1-sigma))+1)
			da[i], db[i] = short(float32(dy*y)*slope), short(dy*float32(x*sigma))
		}
		done()
	})
}

func logistic(x float32) float32 { return 1 / (exp(-x) + 1) }
