package linalg

// MulAddSingle is [MulAdd] with alpha 1, computed in float32.
func MulAddSingle(c, a, b Matrix) {
	addSingle(c, a, b, func(c, a, b MatrixOf[float32]) { MulAdd(c, 1, a, b) })
}

// AddSymmetricSingle is [AddSymmetric] computed in float32.
func AddSymmetricSingle(c, a, b Matrix) {
	addSingle(c, a, b, AddSymmetric)
}

func addSingle(c, a, b Matrix, multiply func(c, a, b MatrixOf[float32])) {
	if c.Rows == 0 || c.Cols == 0 {
		return
	}
	x, y, sum := narrow(a), narrow(b), temporary[float32](c.Rows, c.Cols)
	defer x.release()
	defer y.release()
	defer sum.release()
	multiply(sum, x, y)
	for i := range c.Rows {
		row := c.row(i)
		for j, v := range sum.row(i) {
			row[j] += float64(v)
		}
	}
}

// QRSingle is [QR] computed in float32.
func QRSingle(a Matrix) {
	normalize(a, false)
	q := narrow(a)
	defer q.release()
	QR(q)
	for i := range a.Rows {
		row := a.row(i)
		for j, v := range q.row(i) {
			row[j] = float64(v)
		}
	}
}

// narrow rounds a matrix to float32, in the same layout. The caller must release the result.
func narrow(m Matrix) MatrixOf[float32] {
	size := 0
	if m.Rows > 0 && m.Cols > 0 {
		size = (m.Rows-1)*m.RowStride + (m.Cols-1)*m.ColStride + 1
	}
	out := MatrixOf[float32]{Rows: m.Rows, Cols: m.Cols, RowStride: m.RowStride,
		ColStride: m.ColStride, Data: temporary[float32](1, size).Data}
	for i, v := range m.Data[:size] {
		out.Data[i] = float32(v)
	}
	return out
}
