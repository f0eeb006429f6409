package matmul

import "slices"

// A finish converts a tile of sums of integers to results, which may be in the same memory.
type finish struct {
	rows, columns int
	sums          []uint32
	sumStride     int
	out           []float32
	short         []uint16 // if not nil: results rounded to bfloat16, instead of out
	outStride     int

	// corrections are what the left operand's offset adds to each column; without it, [zeros]. The
	// scales are those of the rows and columns of the tile; [ones] if columns have none.
	corrections             []int32
	rowScales, columnScales []float32
}

// Corrections and scales that change nothing, for the columns of any tile.
var (
	zeros = make([]int32, 32)
	ones  = slices.Repeat([]float32{1}, 32)
)

// orShort extends do to results in bfloat16, which narrow rounds. It then overwrites the sums.
func orShort(do func(f *finish), narrow narrowFunc) func(f *finish) {
	return func(f *finish) {
		if f.short == nil {
			do(f)
			return
		}
		stride := f.outStride
		f.out, f.outStride = asFloats(f.sums), f.sumStride
		do(f)
		narrow(f.short, stride, f.sums, f.sumStride, f.rows, f.columns)
	}
}

func (f *finish) portable() { f.from(0) }

// from finishes the columns from the given one on.
func (f *finish) from(column int) {
	for r, scale := range f.rowScales[:f.rows] {
		sums, out := f.sums[r*f.sumStride:][:f.columns], f.out[r*f.outStride:][:f.columns]
		for c := column; c < len(sums); c++ {
			out[c] = float32(int32(sums[c])-f.corrections[c]) * scale * f.columnScales[c]
		}
	}
}
