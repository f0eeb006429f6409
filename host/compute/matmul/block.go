package matmul

import (
	"sync/atomic"
	"unsafe"
)

// A rightPart is a part of the right operand, packed: all panels of the first blockWords words along the sums, then all of
// the next.
type rightPart struct {
	*run
	part        part
	product     int // of the batch
	packed      []uint32
	corrections []int32 // the offset of the left operand times the sum of each column
}

// shared returns the memory in which all tasks find what is packed of one product.
func (r *run) shared(product int) rightPart {
	width := roundUp(r.part.columns, r.format.columns)
	size := width * r.part.words
	o := rightPart{run: r, part: r.part, product: r.part.batch + product, packed: r.packed[product*size:][:size]}
	if r.format.unsigned {
		o.corrections = r.corrections[product*width:][:width]
	}
	return o
}

// block returns the words from one on, as many as kernels multiply at a time.
func (o *rightPart) block(word int) (packed []uint32, depth int) {
	return o.packed[word*roundUp(o.part.columns, o.format.columns):], min(blockWords, o.part.words-word)
}

// elements returns the contracted elements in words of the part.
func (o *rightPart) elements(word, depth int) (first, count int) {
	first = (o.part.word + word) * o.format.per
	return first, min(depth*o.format.per, o.k-first)
}

// pack packs some panels, of some words. What an offset of the left operand adds to each column is added to the corrections,
// perhaps by several tasks at once: the order of integers does not matter.
func (o *rightPart) pack(word, end, panel, panels int, w *workspace) {
	f := o.format
	column := panel * f.columns
	columns := min(panels*f.columns, o.part.columns-column)
	width := roundUp(columns, f.columns)
	for ; word < end; word += blockWords {
		packed, depth := o.block(word)
		packed = packed[column*depth:][:width*depth]
		w.source = source{view: &o.right, base: o.right.batch.at(o.product), row: o.part.column + column, rows: columns, height: f.columns}
		w.source.first, w.source.count = o.elements(word, depth)
		f.pack(packed, o.rightElements, &w.source, &w.stage)
		if !f.unsigned {
			continue
		}
		for c := 0; c < width; c += f.columns {
			sums := w.sums[:f.columns]
			clear(sums)
			f.addColumns(sums, packed[c*depth:][:f.columns*depth])
			for i, s := range sums {
				atomic.AddInt32(&o.corrections[column+c+i], s*int32(o.offset))
			}
		}
	}
}

// multiply multiplies some rows of the left operand, which it packs, by some panels.
func (o *rightPart) multiply(row, rows, panel, panels int, w *workspace) {
	f := o.format
	padded := roundUp(rows, f.rows)
	o.prepare(&w.finish)
	for word := 0; word == 0 || word < o.part.words; word += blockWords {
		packed, depth := o.block(word)
		left := w.left.get(padded*depth + 8)
		w.source = source{view: &o.left, base: o.left.batch.at(o.product), row: row, rows: rows, height: f.rows}
		w.source.first, w.source.count = o.elements(word, depth)
		f.pack(left, o.leftElements, &w.source, &w.stage)
		if f.unsigned {
			f.shift(left[:padded*depth], o.offset)
		}
		first, last := o.part.first && word == 0, o.part.last && word+depth == o.part.words
		for j := panel; j < panel+panels && j*f.columns < o.part.columns; j++ {
			b := packed[j*f.columns*depth:][:f.columns*depth]
			for i := 0; i < rows; i += f.rows {
				o.askFor(packed, row, rows, i, j, depth, w)
				o.tile(depth, left[i*depth:][:f.rows*depth], b, row+i, rows-i, j*f.columns, first, last, w)
			}
		}
	}
}

// askFor has memory fetched that the tile of row i of a block and of panel j needs in the end, or tiles after it.
func (o *rightPart) askFor(packed []uint32, row, rows, i, j, depth int, w *workspace) {
	f := o.format
	if !f.ahead {
		if next := i + f.rows; next < rows {
			// The next tile's place in the output, which is far from this one's.
			at, size := o.out.address(o.at(row+next, j*f.columns))
			f.prefetch(at, size*o.n, min(f.rows, rows-next), size*min(f.columns, o.part.columns-j*f.columns))
		}
		return
	}
	at, size := o.out.address(o.at(row+i, j*f.columns))
	w.ahead.rows, w.ahead.stride = uintptr(at), size*o.n
	// Each tile asks for a piece of the next panel, and when that is all there, for what is there already.
	panel := f.columns * depth
	right := packed[j*panel:]
	if at := i / f.rows * aheadWords; at < panel && (j+2)*panel <= len(packed) {
		right = packed[(j+1)*panel+at:]
	}
	w.ahead.right = address(right)
}

// address is where a result stands, and how many bytes it has.
func (r results) address(i int) (at unsafe.Pointer, size int) {
	if r.short != nil {
		return unsafe.Pointer(&r.short[i]), 2
	}
	return unsafe.Pointer(&r.float[i]), 4
}

func address[T any](x []T) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(x))) }

// at is where an element of the output stands; its column is one of the part.
func (o *rightPart) at(row, column int) int { return (o.product*o.m+row)*o.n + o.part.column + column }

// tile multiplies two panels. The sums of all but the last words stay in r.sums; where the tile hangs over the edge of the
// output, or where the sums are complete at once, they go through memory of the task.
func (o *rightPart) tile(depth int, a, b []uint32, row, rows, column int, first, last bool, w *workspace) {
	f := o.format
	rows, columns := min(rows, f.rows), min(o.part.columns-column, f.columns)
	full := rows == f.rows && columns == f.columns
	at := o.at(row, column)
	accumulate := !first || o.direct && o.options.Add
	sums, stride := w.tile, f.columns
	if !first || !last || o.direct {
		sums, stride = o.sums[at:], o.n
	}
	switch {
	case full || first && last && !o.direct:
		f.kernel(depth, o.steps, a, b, sums, stride, accumulate, &w.ahead)
	default:
		f.kernel(depth, o.steps, a, b, w.tile, f.columns, false, &w.ahead)
		for r := range rows {
			merge(sums[r*stride:][:columns], w.tile[r*f.columns:], accumulate, f.integers)
		}
	}
	if o.direct || !last {
		return
	}
	if o.out.short == nil {
		o.finish(&w.finish, rows, columns, sums, stride, o.out.float[at:], o.n, row, column)
		return
	}
	if f.integers || o.scales.Rows != nil || o.scales.Columns != nil {
		o.finish(&w.finish, rows, columns, sums, stride, asFloats(w.tile), f.columns, row, column)
		sums, stride = w.tile, f.columns
	}
	f.narrow(o.out.short[at:], o.n, sums, stride, rows, columns)
}

// finish turns sums into results. They may be in the same memory.
func (o *rightPart) finish(e *finish, rows, columns int, sums []uint32, stride int, out []float32, outStride, row, column int) {
	e.rows, e.columns = rows, columns
	e.sums, e.sumStride = sums, stride
	e.out, e.outStride = out, outStride
	if o.format.unsigned {
		e.corrections = o.corrections[column:]
	}
	if s := o.scales.Rows; s != nil {
		e.rowScales = s[scaleAt(s, o.product, row, o.m):]
	}
	if s := o.scales.Columns; s != nil {
		e.columnScales = s[scaleAt(s, o.product, o.part.column+column, o.n):]
	}
	o.format.finish(e)
}

// prepare sets what is the same for all tiles.
func (o *rightPart) prepare(e *finish) {
	*e = finish{integers: o.format.integers, round: o.options.Round && o.out.short == nil, add: o.options.Add}
	if len(o.scales.Rows) > 1 {
		e.rowStride = 1
	}
	if len(o.scales.Columns) > 1 {
		e.columnStride = 1
	}
}

// scaleAt is where the scale of a row or column of a product stands.
func scaleAt(scales []float32, product, i, n int) int {
	switch len(scales) {
	case 1:
		return 0
	case n:
		return i
	}
	return product*n + i
}

// merge copies sums, or adds them to what is there.
func merge(to, from []uint32, accumulate, integers bool) {
	from = from[:len(to)]
	switch {
	case !accumulate:
		copy(to, from)
	case integers:
		for i, x := range from {
			to[i] += x
		}
	default:
		sums, x := asFloats(to), asFloats(from)
		for i := range sums {
			sums[i] += x[i]
		}
	}
}
