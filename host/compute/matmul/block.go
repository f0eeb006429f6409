package matmul

import "sync/atomic"

// A rightPart is a packed part of the right operand: all panels of the first block of words along
// the contracted dimension, then all panels of the next.
type rightPart struct {
	*run
	part        part
	product     int // index in the batch
	packed      []uint32
	corrections []int32 // the offset of the left operand times the sum of each column
}

// shared returns the memory that all tasks share for the packed right operand of one product.
func (r *run) shared(product int) rightPart {
	width := roundUp(r.part.columns, r.format.columns)
	size := width * r.part.words
	o := rightPart{run: r, part: r.part, product: r.part.batch + product}
	o.packed = r.packed[product*size:][:size]
	if r.format.unsigned {
		o.corrections = r.corrections[product*width:][:width]
	}
	return o
}

func (o *rightPart) packedBlock(word int) (packed []uint32, depth int) {
	first := word * roundUp(o.part.columns, o.format.columns)
	return o.packed[first:], min(o.run.block, o.part.words-word)
}

func (o *rightPart) elements(word, depth int) (first, count int) {
	first = (o.part.word + word) * o.format.per
	return first, min(depth*o.format.per, o.k-first)
}

// pack packs a range of words of a range of panels. It adds the contribution of the left operand's
// offset to each column's correction; concurrent calls may do so in any order, because integer sums
// are exact.
func (o *rightPart) pack(word, end, panel, panels int, w *workspace) {
	f := o.format
	column := panel * f.columns
	columns := min(panels*f.columns, o.part.columns-column)
	width := roundUp(columns, f.columns)
	for ; word < end; word += o.run.block {
		packed, depth := o.packedBlock(word)
		packed = packed[column*depth:][:width*depth]
		w.source = source{view: &o.right, base: o.right.batch.at(o.product), row: o.part.column + column,
			rows: columns, height: f.columns}
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
				atomic.AddInt32(&o.corrections[column+c+i], s*offset)
			}
		}
	}
}

// multiply packs a range of rows of the left operand and multiplies them by a range of panels. It
// packs as many words of the left operand as fit into its buffer, and completes the sums over them
// for one panel after the other.
func (o *rightPart) multiply(row, rows, panel, panels int, w *workspace) {
	f, step := o.format, o.run.block
	padded := roundUp(rows, f.rows)
	group := max(1, divideUp(f.cut.left/padded, step)) * step
	for first := 0; first == 0 || first < o.part.words; first += group {
		end := min(first+group, o.part.words)
		left := w.left.get(padded*(end-first) + 8)
		for word := first; word < end; word += step {
			w.source = source{view: &o.left, base: o.left.batch.at(o.product), row: row, rows: rows,
				height: f.rows, tiled: f.tiled}
			depth := min(step, end-word)
			w.source.first, w.source.count = o.elements(word, depth)
			packed := left[padded*(word-first):]
			f.pack(packed, o.leftElements, &w.source, &w.stage)
			if f.unsigned {
				f.shift(packed[:padded*depth])
			}
		}
		for j := panel; j < panel+panels && j*f.columns < o.part.columns; j++ {
			for word := first; word == first || word < end; word += step {
				packed, depth := o.packedBlock(word)
				size := f.columns * depth
				b := block{row: row, rows: rows, column: j * f.columns, depth: depth,
					left: left[padded*(word-first):], right: packed[j*size:][:size]}
				b.columns = min(o.part.columns-b.column, f.columns)
				if word+depth < end {
					next, depth := o.packedBlock(word + depth)
					b.ahead = next[j*f.columns*depth:][:f.columns*depth]
				} else {
					next, depth := o.packedBlock(first)
					b.ahead = next[min((j+1)*f.columns*depth, len(next)):]
					b.ahead = b.ahead[:min(f.columns*depth, len(b.ahead))]
				}
				isFirst, isLast := o.part.first && word == 0, o.part.last && word+depth == o.part.words
				o.destination(&b, word == first, word+depth >= end, isFirst, isLast, w)
				o.multiplyBlock(&b, w)
			}
		}
	}
}

// at returns the index of an element of the output, given its column in the part.
func (o *rightPart) at(row, column int) int {
	return (o.product*o.m+row)*o.n + o.part.column + column
}

// finish converts rows of a tile, which are the block's from the given row on, to results.
func (o *rightPart) finish(b *block, row, rows int, w *workspace) {
	e, at := &w.finish, row*b.stride
	*e = finish{rows: rows, columns: b.columns, sums: w.tile, sumStride: o.format.columns,
		outStride: b.stride, corrections: zeros, rowScales: o.scales.Rows[b.row+row:],
		columnScales: ones}
	if b.short != nil {
		e.short = b.short[at:]
	} else {
		e.out = asFloats(b.sums[at:])
	}
	if o.format.unsigned {
		e.corrections = o.corrections[b.column:]
	}
	if s := o.scales.Columns; s != nil {
		e.columnScales = s[o.part.column+b.column:]
	}
	o.format.finish(e)
}
