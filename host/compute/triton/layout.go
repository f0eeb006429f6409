package triton

import (
	"math/bits"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

// A layout says which elements of a tensor belong to which row. All rows have equally many, one
// after the other in memory.
type layout struct {
	// outer is the number of leading axes that count rows.
	outer int
	// merged says that the last of them counts parts of rows, too. The number of parts is then the first
	// axis in the row.
	merged bool
	// row are the axes in a row; none for one element.
	row []int
}

// layout divides a type's axes into those that count rows and those within a row. ok is false for what has no
// part in every row, such as a scalar where there are several rows.
func (w *writer) layout(t program.Type) (l layout, ok bool) {
	if t.Size() == 1 && w.rows > 1 {
		return layout{}, false
	}
	count := 1
	for l.outer < len(t.Shape) && count%w.rows != 0 {
		count *= t.Shape[l.outer]
		l.outer++
	}
	if count%w.rows != 0 {
		return layout{}, false
	}
	if parts := count / w.rows; parts > 1 {
		l.merged = true
		l.row = append(l.row, parts)
	}
	l.row = append(l.row, t.Shape[l.outer:]...)
	for _, n := range l.row[min(len(l.row), l.first()+1):] {
		if n&(n-1) != 0 {
			return layout{}, false
		}
	}
	return l, true
}

// first is the axis in the row that is padded to a power of two: the first that is longer than 1.
func (l layout) first() int {
	return max(0, slices.IndexFunc(l.row, func(n int) bool { return n > 1 }))
}

// size is the number of elements in a row.
func (l layout) size() int {
	n := 1
	for _, x := range l.row {
		n *= x
	}
	return n
}

// dims are the axes in a row as a tile has them: powers of two. The padding is at the end of the row and has any
// value.
func (l layout) dims() []int {
	dims := slices.Clone(l.row)
	if len(dims) > 0 {
		i := l.first()
		dims[i] = power(dims[i])
	}
	return dims
}

// padded is the number of elements in a row of a tile.
func (l layout) padded() int { return power(l.size()) }

// axis is the axis of a tile that corresponds to axis i of the tensor; 0 for one that counts rows.
func (l layout) axis(i int) int {
	if i < l.outer {
		return 0
	}
	if l.merged {
		i++
	}
	return 1 + i - l.outer
}

// power is the least power of two that is not below n.
func power(n int) int { return 1 << bits.Len(uint(n-1)) }
