package matmul

import "fmt"

// An Axis is an axis of a tensor: its size and its stride in elements. A stride of 0 repeats the
// same elements.
type Axis struct{ Size, Stride int }

// A Layout describes where the elements of an operand are in memory. In each list of axes the last
// one varies fastest.
type Layout struct {
	Batch      []Axis // a product for each index; the same sizes in both operands
	Cross      []Axis // rows of the left operand, columns of the right one
	Contracted []Axis // summed over; the same sizes in both operands
}

// Elements holds the elements of an operand in exactly one slice, which must cover the whole
// layout.
type Elements struct {
	Float32  []float32
	BFloat16 []uint16 // upper halves of float32 numbers
	Int8     []int8
}

// Len returns the number of elements.
func (e Elements) Len() int { return len(e.Float32) + len(e.BFloat16) + len(e.Int8) }

// From returns the elements from index i on.
func (e Elements) From(i int) Elements {
	switch {
	case e.BFloat16 != nil:
		return Elements{BFloat16: e.BFloat16[i:]}
	case e.Int8 != nil:
		return Elements{Int8: e.Int8[i:]}
	}
	return Elements{Float32: e.Float32[i:]}
}

// axes combines axes of a layout into one index.
type axes struct {
	size   int
	stride int   // distance of consecutive elements, if table is nil
	table  []int // offset of each index
	inner  Axis  // the fastest axis, after joining
}

func (a *axes) at(i int) int {
	if a.table != nil {
		return a.table[i]
	}
	return i * a.stride
}

// join combines axes into one index: consecutive axes that are contiguous in memory are merged, and
// if more than one remains, the offsets are tabulated.
func join(list []Axis) axes {
	var joined []Axis
	size := 1
	for _, a := range list {
		size *= a.Size
		if a.Size == 1 {
			continue
		}
		if last := len(joined) - 1; last >= 0 && joined[last].Stride == a.Size*a.Stride {
			joined[last] = Axis{joined[last].Size * a.Size, a.Stride}
			continue
		}
		joined = append(joined, a)
	}
	switch len(joined) {
	case 0:
		return axes{size: size, stride: 1, inner: Axis{size, 1}}
	case 1:
		return axes{size: size, stride: joined[0].Stride, inner: joined[0]}
	}
	if size == 0 {
		return axes{inner: joined[len(joined)-1]}
	}
	table := make([]int, 1, size)
	for _, a := range joined {
		outer := table
		table = make([]int, 0, size)
		for _, at := range outer {
			for i := range a.Size {
				table = append(table, at+i*a.Stride)
			}
		}
	}
	return axes{size: size, table: table, inner: joined[len(joined)-1]}
}

type view struct {
	batch, cross, contracted axes
	extent                   int // number of elements up to the last one used
}

func newView(which string, l Layout) (view, error) {
	// In float64, which cannot overflow here.
	extent, empty := 1.0, false
	for _, list := range [][]Axis{l.Batch, l.Cross, l.Contracted} {
		count := 1.0
		for _, a := range list {
			if a.Size < 0 || a.Stride < 0 {
				const format = "the %s operand has an axis of size %d and stride %d: neither may be negative"
				return view{}, fmt.Errorf(format, which, a.Size, a.Stride)
			}
			if a.Size == 0 {
				empty = true
				continue
			}
			extent += float64(a.Size-1) * float64(a.Stride)
			count *= float64(a.Size)
		}
		if max(extent, count) > maxElements {
			const format = "the %s operand is too large: it may span at most %d elements"
			return view{}, fmt.Errorf(format, which, uint64(maxElements))
		}
	}
	v := view{batch: join(l.Batch), cross: join(l.Cross), contracted: join(l.Contracted)}
	if !empty {
		v.extent = int(extent)
	}
	return v, nil
}

// maxElements keeps the number of elements within the range of int.
const maxElements = 1 << 40
