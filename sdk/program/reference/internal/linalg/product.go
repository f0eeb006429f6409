package linalg

import "sync"

// Matrix is a matrix in memory: element (i, j) is Data[i·RowStride + j·ColStride].
type Matrix struct {
	Rows, Cols           int
	RowStride, ColStride int
	Data                 []float64
}

// RowMajor is a matrix whose rows follow each other.
func RowMajor(data []float64, rows, cols int) Matrix {
	return Matrix{Rows: rows, Cols: cols, RowStride: cols, ColStride: 1, Data: data}
}

func (m Matrix) at(i, j int) float64 { return m.Data[i*m.RowStride+j*m.ColStride] }

// T is the transpose, in the same memory.
func (m Matrix) T() Matrix {
	return Matrix{Rows: m.Cols, Cols: m.Rows, RowStride: m.ColStride, ColStride: m.RowStride, Data: m.Data}
}

// part is the submatrix of rows from i0 to before i1 and columns from j0 to before j1.
func (m Matrix) part(i0, i1, j0, j1 int) Matrix {
	p := Matrix{Rows: i1 - i0, Cols: j1 - j0, RowStride: m.RowStride, ColStride: m.ColStride}
	if p.Rows > 0 && p.Cols > 0 {
		p.Data = m.Data[i0*m.RowStride+j0*m.ColStride:]
	}
	return p
}

// row is a row of a matrix whose columns are neighbours.
func (m Matrix) row(i int) []float64 {
	return m.Data[i*m.RowStride : i*m.RowStride+m.Cols]
}

// spare holds the memory of temporary matrices that are no longer needed: fresh memory
// costs more than many an operation on it.
var spare sync.Pool

// temporary is a zero matrix that must be released.
func temporary(rows, cols int) Matrix {
	size := rows * cols
	if data, ok := spare.Get().(*[]float64); ok && cap(*data) >= size {
		m := RowMajor((*data)[:size], rows, cols)
		clear(m.Data)
		return m
	}
	return RowMajor(make([]float64, size), rows, cols)
}

// release gives the memory of a temporary matrix back.
func (m Matrix) release() { spare.Put(&m.Data) }

// The blocks of a product: a strip of B stays in the first-level cache, a block of A
// in the second.
const (
	blockInner = 256
	blockRows  = 24 * tileRows
	blockCols  = 1024
)

// packed is the memory for one block of A and one of B, and a tile at the edge of C.
type packed struct {
	a, b []float64
	edge [tileRows * 16]float64
}

var packs = sync.Pool{New: func() any {
	return &packed{a: make([]float64, blockRows*blockInner), b: make([]float64, blockInner*blockCols)}
}}

// MulAdd adds alpha·a·b to c, whose columns must be neighbours. Every product is
// formed, also one with zero: NaN and infinities spread as in the definition.
func MulAdd(c Matrix, alpha float64, a, b Matrix) {
	if c.Rows == 0 || c.Cols == 0 {
		return
	}
	buf := packs.Get().(*packed)
	defer packs.Put(buf)
	for j := 0; j < c.Cols; j += blockCols {
		cols := min(blockCols, c.Cols-j)
		for p := 0; p < a.Cols; p += blockInner {
			inner := min(blockInner, a.Cols-p)
			pack(buf.b, b.part(p, p+inner, j, j+cols).T(), 1, active.tileCols)
			for i := 0; i < c.Rows; i += blockRows {
				rows := min(blockRows, c.Rows-i)
				pack(buf.a, a.part(i, i+rows, p, p+inner), alpha, tileRows)
				buf.multiply(c.part(i, i+rows, j, j+cols), inner)
			}
		}
	}
}

// pack copies m, times alpha, in strips of height rows, each column by column. The
// last strip is filled up with zeros.
func pack(to []float64, m Matrix, alpha float64, height int) {
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

// packColumns packs a strip whose columns are contiguous.
func packColumns(strip []float64, m Matrix, alpha float64, height int) {
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

// packRows packs any strip; where rows are contiguous it takes four of them at a time,
// so that stretches of memory are written and not single elements.
func packRows(strip []float64, m Matrix, alpha float64, height int) {
	i := 0
	for ; i+4 <= m.Rows && m.ColStride == 1; i += 4 {
		r0, r1, r2, r3 := m.row(i), m.row(i+1), m.row(i+2), m.row(i+3)
		at := i
		for j, v := range r0 {
			to := (*[4]float64)(strip[at:])
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

// multiply adds the product of the packed blocks to c.
func (p *packed) multiply(c Matrix, inner int) {
	width := active.tileCols
	for j := 0; j < c.Cols; j += width {
		b := p.b[j*inner:]
		for i := 0; i < c.Rows; i += tileRows {
			a := p.a[i*inner:]
			rows, cols := min(tileRows, c.Rows-i), min(width, c.Cols-j)
			at := c.Data[i*c.RowStride+j:]
			if rows == tileRows && cols == width {
				active.tile(inner, a, b, at, c.RowStride)
				continue
			}
			clear(p.edge[:])
			active.tile(inner, a, b, p.edge[:], width)
			for r := range rows {
				for k, v := range p.edge[r*width:][:cols] {
					at[r*c.RowStride+k] += v
				}
			}
		}
	}
}
