package loops

import "math"

// weightLeast is the logarithm below which weights are set to 0; weights just above are normal
// numbers. Processors are about a hundred times slower when results are subnormal or underflow.
const weightLeast = -87

// weight returns exp(x), or 0 below weightLeast. Except for rounding, x must not be positive.
func weight(x float32) float32 {
	if x <= weightLeast {
		return 0
	}
	return exp(x)
}

// MaxColumns sets each element of most to the maximum of itself and the same column of a, whose
// rows have len(most) elements. The result for a column that contains NaN is undefined.
func MaxColumns(most, a []float32) {
	for j := maxColumns(most, a); j < len(most); j++ {
		for i := j; i < len(a); i += len(most) {
			if a[i] > most[j] {
				most[j] = a[i]
			}
		}
	}
}

// A Form is the format into which results are converted to become operands of products.
type Form int

// The forms. Paired joins rows 2i and 2i+1 into row i: each 32-bit word holds two elements of a
// column in bfloat16, the even row's in the lower half. If the number of rows is odd, the last row
// is joined with zeros.
const (
	Exact   Form = iota
	Rounded      // to bfloat16
	Paired
)

// ExpColumns converts the scores in a, which has rows of len(sums) elements, to weights. A score x
// becomes exp(x·scale − d), where d is its column's element of down, or 0 if that is below
// exp(−87). The weights are added to their columns' elements of sums; every 64 rows are summed
// first, then added to the total. Finally, the weights are converted to the form.
func ExpColumns(a []float32, scale float32, down, sums []float32, form Form) {
	plainExpColumns(a, scale, down, sums, form, expColumns(a, scale, down, sums, form))
}

// Softcap replaces x by limit·tanh(x/limit), unless the limit is 0.
func Softcap(x []float32, limit float64) {
	if limit != 0 {
		BinaryS(Mul, x, x, float32(1/limit))
		Unary(Tanh, x, x)
		BinaryS(Mul, x, x, float32(limit))
	}
}

// ExpRows replaces the scores in a by weights, as ExpColumns does, and the adjoints of the weights
// in d by the adjoints of the unscaled scores: weight·(d − mean)·scale. down and means have one
// element for each row. Both results are converted to the form. If a score is −∞, both are 0, even
// if its row contains NaN.
func ExpRows(a, d []float32, scale float32, down, means []float32, form Form) {
	if !expRows(a, d, scale, down, means, form) {
		plainExpRows(a, d, scale, down, means, form)
	}
}

// Transpose transposes an operand: element i of row j of dst is element j of row i of src. Both
// consist of words; the rows of src are stride words apart. For [Paired], columns must be even.
func (f Form) Transpose(dst []float32, dstStride int, src []float32, stride, rows, columns int) {
	if f != Paired {
		Transpose(dst, dstStride, src, stride, rows, columns, nil)
		return
	}
	wholeRows, wholeColumns := 0, 0
	if hasAVX2 {
		wholeRows, wholeColumns = rows&^7, columns&^7
		transposePairs(dst, dstStride, src, stride, wholeRows, wholeColumns)
	}
	plainTransposePairs(dst, dstStride, src, stride, wholeRows, rows, 0, columns)
	plainTransposePairs(dst, dstStride, src, stride, 0, wholeRows, wholeColumns, columns)
}

func plainTransposePairs(
	dst []float32, dstStride int, src []float32, stride, firstRow, rows, firstColumn, columns int,
) {
	for i := firstRow; i < rows; i++ {
		for j := firstColumn; j < columns; j += 2 {
			x, y := math.Float32bits(src[i*stride+j]), math.Float32bits(src[i*stride+j+1])
			to := dst[j/2*dstStride+2*i:]
			to[0], to[1] = math.Float32frombits(x&0xffff|y<<16), math.Float32frombits(x>>16|y&0xffff0000)
		}
	}
}

// sumRows is the number of rows whose exponentials are summed before they are added to the total.
const sumRows = 64

func plainExpColumns(a []float32, scale float32, down, sums []float32, form Form, from int) {
	width := len(sums)
	for j := from; j < width; j++ {
		for start := 0; start < len(a); start += sumRows * width {
			sum := float32(0)
			for i := start + j; i < min(len(a), start+sumRows*width); i += width {
				x := weight(float32(a[i]*scale) - down[j])
				sum += x
				form.put(a, i/width, j, width, x)
			}
			sums[j] += sum
		}
	}
}

func plainExpRows(a, d []float32, scale float32, down, means []float32, form Form) {
	width := len(a) / len(down)
	for i := range a {
		row, column := i/width, i%width
		x, y := float32(0), float32(0)
		if !math.IsInf(float64(a[i]), -1) {
			x = weight(float32(a[i]*scale) - down[row])
			y = float32(x*(d[i]-means[row])) * scale
		}
		form.put(a, row, column, width, x)
		form.put(d, row, column, width, y)
	}
}

// put writes one element of a block in the form. Rows must be written in order, because Paired
// overwrites rows that have been read.
func (f Form) put(block []float32, row, column, width int, x float32) {
	switch f {
	case Exact:
		block[row*width+column] = x
	case Rounded:
		block[row*width+column] = wide(short(x))
	case Paired:
		word := &block[row/2*width+column]
		bits := uint32(short(x)) // the even row clears the upper half
		if row%2 == 1 {
			bits = math.Float32bits(*word) | bits<<16
		}
		*word = math.Float32frombits(bits)
	}
}
