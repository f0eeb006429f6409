package linalg

// Float constrains element types.
type Float interface{ float32 | float64 }

// MatrixOf is a strided matrix: element (i, j) is Data[i·RowStride + j·ColStride].
type MatrixOf[T Float] struct {
	Rows, Cols           int
	RowStride, ColStride int
	Data                 []T
}

// Matrix is a float64 matrix.
type Matrix = MatrixOf[float64]

// RowMajor returns a matrix with the given data, row by row.
func RowMajor[T Float](data []T, rows, cols int) MatrixOf[T] {
	return MatrixOf[T]{Rows: rows, Cols: cols, RowStride: cols, ColStride: 1, Data: data}
}

func (m MatrixOf[T]) at(i, j int) T { return m.Data[i*m.RowStride+j*m.ColStride] }

// T returns the transpose. It shares memory with m.
func (m MatrixOf[T]) T() MatrixOf[T] {
	return MatrixOf[T]{m.Cols, m.Rows, m.ColStride, m.RowStride, m.Data}
}

// part returns the submatrix of rows i0 to i1 and columns j0 to j1, excluding i1 and j1.
func (m MatrixOf[T]) part(i0, i1, j0, j1 int) MatrixOf[T] {
	p := MatrixOf[T]{Rows: i1 - i0, Cols: j1 - j0, RowStride: m.RowStride, ColStride: m.ColStride}
	if p.Rows > 0 && p.Cols > 0 {
		p.Data = m.Data[i0*m.RowStride+j0*m.ColStride:]
	}
	return p
}

func (m MatrixOf[T]) row(i int) []T {
	return m.Data[i*m.RowStride : i*m.RowStride+m.Cols]
}

// temporary returns a zero matrix. The caller must release it.
func temporary[T Float](rows, cols int) MatrixOf[T] {
	size := rows * cols
	if data, ok := poolsOf[T]().matrices.Get().(*[]T); ok && cap(*data) >= size {
		m := RowMajor((*data)[:size], rows, cols)
		clear(m.Data)
		return m
	}
	return RowMajor(make([]T, size), rows, cols)
}

func (m MatrixOf[T]) release() { poolsOf[T]().matrices.Put(&m.Data) }

// Block sizes of a product, such that a strip of B fits in the L1 cache and a block of A in the L2
// cache.
const (
	blockInner = 192
	blockRows  = 12 * maxTileRows
	blockCols  = 512
)

// packed is memory for a block of A, a block of B, and a tile at the edge of C.
type packed[T Float] struct {
	a, b []T
	edge [maxTileRows * maxTileCols]T
}

// MulAdd adds alpha·a·b to c, whose ColStride must be 1. NaN and infinities propagate, because
// multiplications by zero are not skipped.
func MulAdd[T Float](c MatrixOf[T], alpha T, a, b MatrixOf[T]) {
	mulAdd(c, alpha, a, b, false)
}

// AddSymmetric adds a·b, which must be symmetric except for rounding, to the symmetric matrix c. It
// takes little more than half the time of [MulAdd], because it computes the lower triangle and
// mirrors it.
func AddSymmetric[T Float](c, a, b MatrixOf[T]) {
	mulAdd(c, 1, a, b, true)
	mirror(c)
}

// mirror copies the lower triangle to the upper one, block by block, so that both blocks stay in
// the cache.
func mirror[T Float](c MatrixOf[T]) {
	const side = 16 // elements of a cache line; more rows might evict each other
	for i0 := 0; i0 < c.Rows; i0 += side {
		i1 := min(i0+side, c.Rows)
		for j0 := 0; j0 < i0; j0 += side {
			packRows(c.part(j0, j0+side, i0, i1).Data, c.part(i0, i1, j0, j0+side), 1, c.RowStride)
		}
		for i := i0; i < i1; i++ {
			for j := i0; j < i; j++ {
				c.Data[j*c.RowStride+i] = c.Data[i*c.RowStride+j]
			}
		}
	}
}

// mulAdd implements MulAdd. If lower is set, it skips tiles above the diagonal.
func mulAdd[T Float](c MatrixOf[T], alpha T, a, b MatrixOf[T], lower bool) {
	if c.Rows == 0 || c.Cols == 0 {
		return
	}
	pools, kernels := poolsOf[T](), kernelsOf[T]()
	buf, ok := pools.packs.Get().(*packed[T])
	if !ok {
		buf = &packed[T]{a: make([]T, blockRows*blockInner), b: make([]T, blockInner*blockCols)}
	}
	defer pools.packs.Put(buf)
	for j := 0; j < c.Cols; j += blockCols {
		cols := min(blockCols, c.Cols-j)
		for p := 0; p < a.Cols; p += blockInner {
			inner := min(blockInner, a.Cols-p)
			pack(buf.b, b.part(p, p+inner, j, j+cols).T(), 1, kernels.tileCols)
			for i := 0; i < c.Rows; i += blockRows {
				rows := min(blockRows, c.Rows-i)
				below := cols // the column of the block at which its first row crosses the diagonal
				if lower {
					below = i - j
				}
				if below+rows <= 0 {
					continue
				}
				pack(buf.a, a.part(i, i+rows, p, p+inner), alpha, kernels.tileRows)
				buf.multiply(c.part(i, i+rows, j, j+cols), inner, below)
			}
		}
	}
}

// pack copies alpha·m into strips of height rows, each stored column by column. The last strip is
// padded with zeros.
func pack[T Float](to []T, m MatrixOf[T], alpha T, height int) {
	for i := 0; i < m.Rows; i += height {
		strip := to[i*m.Cols : (i+height)*m.Cols]
		rows := min(height, m.Rows-i)
		if rows < height {
			clear(strip)
		}
		if part := m.part(i, i+rows, 0, m.Cols); m.RowStride == 1 {
			packColumns(strip, part, alpha, height)
		} else {
			packRows(strip, part, alpha, height)
		}
	}
}

func packColumns[T Float](strip []T, m MatrixOf[T], alpha T, height int) {
	for j := range m.Cols {
		copy(strip[j*height:], m.Data[j*m.ColStride:][:m.Rows])
	}
	if alpha == 1 {
		return
	}
	for i := range strip {
		strip[i] *= alpha
	}
}

// packRows packs a strip of any matrix, or transposes it. If rows are contiguous, it reads four of
// them at a time, so that it also writes four contiguous elements.
func packRows[T Float](strip []T, m MatrixOf[T], alpha T, height int) {
	i := 0
	for ; i+4 <= m.Rows && m.ColStride == 1; i += 4 {
		r0, r1, r2, r3 := m.row(i), m.row(i+1), m.row(i+2), m.row(i+3)
		at := i
		for j, v := range r0 {
			to := (*[4]T)(strip[at:])
			to[0], to[1], to[2], to[3] = alpha*v, alpha*r1[j], alpha*r2[j], alpha*r3[j]
			at += height
		}
	}
	for ; i < m.Rows; i++ {
		at := i
		for j := range m.Cols {
			strip[at] = alpha * m.at(i, j)
			at += height
		}
	}
}

// multiply adds the product of the packed blocks to c. It skips tiles above the diagonal, which
// crosses row 0 of the block at column below.
func (p *packed[T]) multiply(c MatrixOf[T], inner, below int) {
	kernels := kernelsOf[T]()
	height, width := kernels.tileRows, kernels.tileCols
	for j := 0; j < c.Cols; j += width {
		b := p.b[j*inner:]
		for i := 0; i < c.Rows; i += height {
			a := p.a[i*inner:]
			rows, cols := min(height, c.Rows-i), min(width, c.Cols-j)
			if j >= i+rows+below {
				continue
			}
			at := c.Data[i*c.RowStride+j:]
			if rows == height && cols == width {
				kernels.tile(inner, a, b, at, c.RowStride)
				continue
			}
			clear(p.edge[:])
			kernels.tile(inner, a, b, p.edge[:], width)
			for r := range rows {
				for k, v := range p.edge[r*width:][:cols] {
					at[r*c.RowStride+k] += v
				}
			}
		}
	}
}
