package loops

import "math"

// Loops of a softmax and of its gradient, for blocks of scores.

// weightLeast is the logarithm below which weights are 0: just above, they are normal numbers.
// Processors are about a hundred times as slow for results that are subnormal or underflow.
const weightLeast = -87

// weight returns the exponential of a number that is not positive, up to rounding.
func weight(x float32) float32 {
	if x <= weightLeast {
		return 0
	}
	return exp(x)
}

// MaxColumns sets each element of most to the maximum of itself and its column of a, whose rows
// have len(most) elements. The result for a column with NaN is undefined.
func MaxColumns(most, a []float32) {
	for j := maxColumns(most, a); j < len(most); j++ {
		for i := j; i < len(a); i += len(most) {
			if a[i] > most[j] {
				most[j] = a[i]
			}
		}
	}
}

// A Form is the format into which a block of numbers is finally converted, as an operand of
// products.
type Form int

// The forms. Paired joins rows 2i and 2i+1 to row i: each 32-bit word holds two elements of a
// column in bfloat16, that of the even row in its lower half. The last of an odd number of rows is
// joined with zeros.
const (
	Exact   Form = iota
	Rounded      // to bfloat16
	Paired
)

// ExpColumns converts the scores in a, which has rows of len(sums) elements, to weights. It
// replaces a score x by exp(x·scale − down), with the down of its column, or by 0 if that is
// below exp(−87), and adds the weight to its column's sum. Sums are formed over 64 rows first,
// and then added to the total. Finally, weights are converted to the form.
func ExpColumns(a []float32, scale float32, down, sums []float32, form Form) {
	plainExpColumns(a, scale, down, sums, form, expColumns(a, scale, down, sums, form))
}

// ExpRows replaces the scores in a by weights, as ExpColumns does, and the adjoints of the weights
// in d by those of the unscaled scores: weight·(d − mean)·scale. down and means have an element
// for each row. Both results are converted to the form. Where a score is −∞, both are 0, even
// if another number of the row is NaN.
func ExpRows(a, d []float32, scale float32, down, means []float32, form Form) {
	if !expRows(a, d, scale, down, means, form) {
		plainExpRows(a, d, scale, down, means, form)
	}
}

// Transpose transposes an operand: element i of row j of dst is element j of row i of src. Both
// consist of words; rows of src are stride words apart. For [Paired] the number of columns is even.
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

// put writes the result of an element of a block. Rows must be written in order, as Paired
// overwrites rows already read.
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
