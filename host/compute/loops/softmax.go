package loops

import "math"

// Loops of a softmax and of its gradient, in blocks of scores.

// weightLeast is where weights become 0: just above, they are normal numbers. Processors take a hundred times as long for a
// number that is subnormal, or too small to be one.
const weightLeast = -87

// weight is the exponential of a number that is not positive but for rounding.
func weight(x float32) float32 {
	if x <= weightLeast {
		return 0
	}
	return exp(x)
}

// MaxColumns makes each element of most the largest of itself and of its column of a, which has rows of len(most) elements. Of a
// column with NaN it is not said what it is.
func MaxColumns(most, a []float32) {
	from := 0
	if hasAVX2 {
		from = maxColumnsVectors(most, a)
	}
	plainMaxColumns(most, a, from)
}

// ExpColumns makes weights of the scores in a, which has rows of len(sums) elements. It replaces a score x by the weight
// exp(x·scale − down), where down is that of its column, or by 0 where that is below exp(−87), and adds the weight to the sum of its
// column. Each 64 rows are added up before they are added to what came before. If rounds is true, the weights are rounded to
// bfloat16 after that.
func ExpColumns(a []float32, scale float32, down, sums []float32, rounds bool) {
	from := 0
	if hasAVX2 {
		from = expColumnsVectors(a, scale, down, sums, rounds)
	}
	plainExpColumns(a, scale, down, sums, rounds, from)
}

// ExpRows replaces the scores in a by weights, as ExpColumns does, and the adjoints of the weights in d by those of the scores
// before they were scaled: weight·(d − mean)·scale. down and means have an element for each row. If rounds is true, both results
// are rounded to bfloat16.
func ExpRows(a, d []float32, scale float32, down, means []float32, rounds bool) {
	if width := len(a) / len(down); hasAVX2 && width%8 == 0 {
		expRowsVectors(a, d, scale, down, means, rounds)
		return
	}
	plainExpRows(a, d, scale, down, means, rounds)
}

// sumRows is the number of rows whose exponentials are added up before they are added to those of others.
const sumRows = 64

func plainMaxColumns(most, a []float32, from int) {
	for j := from; j < len(most); j++ {
		for i := j; i < len(a); i += len(most) {
			if a[i] > most[j] {
				most[j] = a[i]
			}
		}
	}
}

func plainExpColumns(a []float32, scale float32, down, sums []float32, rounds bool, from int) {
	width := len(sums)
	for j := from; j < width; j++ {
		for start := 0; start < len(a); start += sumRows * width {
			sum := float32(0)
			for i := start + j; i < min(len(a), start+sumRows*width); i += width {
				x := weight(float32(a[i]*scale) - down[j])
				sum += x
				a[i] = roundedIf(rounds, x)
			}
			sums[j] += sum
		}
	}
}

func plainExpRows(a, d []float32, scale float32, down, means []float32, rounds bool) {
	width := len(a) / len(down)
	for i := range a {
		row := i / width
		x := weight(float32(a[i]*scale) - down[row])
		a[i] = roundedIf(rounds, x)
		d[i] = roundedIf(rounds, float32(x*(d[i]-means[row]))*scale)
	}
}

func roundedIf(rounds bool, x float32) float32 {
	if !rounds {
		return x
	}
	return math.Float32frombits(uint32(short(x)) << 16)
}
