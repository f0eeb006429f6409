package loops

// HasGates reports whether [Gates] is faster than elementwise operations.
func HasGates() bool { return hasAVX512 }

// Gates computes the products silu(a)·b of a gated linear unit, where silu(a) = a/(1 + e⁻ᵃ)
// (Shazeer, "GLU Variants Improve Transformer", 2020). Tensors are in bfloat16, arithmetic in
// float32.
type Gates struct{ A, B []uint16 }

// Values writes the gated products to dst.
func (g Gates) Values(dst []uint16, parallel Parallel) {
	divide(len(g.A), 4, parallel, func(from, end int) {
		i := from
		if hasAVX512 {
			i += gate(dst[from:end], g.A[from:end], g.B[from:end])
		}
		for ; i < end; i++ {
			x := wide(g.A[i])
			dst[i] = short(float32(x*logistic(x)) * wide(g.B[i]))
		}
		done()
	})
}

// Adjoints writes the adjoints of A and B to da and db, given d, the adjoint of the products.
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
