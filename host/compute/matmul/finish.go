package matmul

import "math"

// A finish converts a tile of sums to results, which may be in the same memory.
type finish struct {
	rows, columns int
	sums          []uint32
	sumStride     int
	out           []float32
	short         []uint16 // if not nil: results rounded to bfloat16, instead of out
	outStride     int

	integers    bool
	corrections []int32 // what the left operand's offset adds to each column; nil without an offset

	rowScales    []float32 // nil for factors of 1
	rowStride    int       // 0: one scale for all rows
	columnScales []float32 // nil for factors of 1
	columnStride int
}

// orShort extends do to results in bfloat16, which narrow rounds. It then overwrites the sums.
func orShort(do func(f *finish), narrow narrowFunc) func(f *finish) {
	return func(f *finish) {
		if f.short == nil {
			do(f)
			return
		}
		wide := *f
		wide.short, wide.out, wide.outStride = nil, asFloats(f.sums), f.sumStride
		do(&wide)
		narrow(f.short, f.outStride, f.sums, f.sumStride, f.rows, f.columns)
	}
}

func (f *finish) portable() {
	for r := range f.rows {
		f.rowFrom(r, 0)
	}
}

func (f *finish) rowFrom(r, from int) {
	sums, out := f.sums[r*f.sumStride:][:f.columns], f.out[r*f.outStride:][:f.columns]
	for c := from; c < len(sums); c++ {
		x := math.Float32frombits(sums[c])
		if f.integers {
			s := int32(sums[c])
			if f.corrections != nil {
				s -= f.corrections[c]
			}
			x = float32(s)
		}
		if f.rowScales != nil {
			x *= f.rowScales[r*f.rowStride]
		}
		if f.columnScales != nil {
			x *= f.columnScales[c*f.columnStride]
		}
		out[c] = x
	}
}
