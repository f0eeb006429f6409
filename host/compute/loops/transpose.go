package loops

// Transpose writes the transposed matrix: element j of row i of src becomes element i of row j of
// dst. Row i of src begins at i·stride. Columns are multiplied by factors, unless that is nil.
func Transpose(dst []float32, dstStride int, src []float32, stride, rows, columns int,
	factors []float32) {
	wholeRows, wholeColumns := 0, 0
	if hasAVX2 {
		wholeRows, wholeColumns = rows&^7, columns&^7
		transpose(dst, dstStride, src, stride, wholeRows, wholeColumns, factors)
	}
	plainTranspose(dst, dstStride, src, stride, wholeRows, rows, 0, columns, factors)
	plainTranspose(dst, dstStride, src, stride, 0, wholeRows, wholeColumns, columns, factors)
}

func plainTranspose(dst []float32, dstStride int, src []float32, stride, firstRow, rows,
	firstColumn, columns int, factors []float32) {
	for i := firstRow; i < rows; i++ {
		for j := firstColumn; j < columns; j++ {
			x := src[i*stride+j]
			if factors != nil {
				x *= factors[j]
			}
			dst[j*dstStride+i] = x
		}
	}
}
