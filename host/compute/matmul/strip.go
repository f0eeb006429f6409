package matmul

import "unsafe"

// A strip is a column of tiles, one below the other: the products of left panels and one right
// panel.
type strip struct {
	words, tiles int
	left         []uint32 // its panels begin apart words from each other
	apart        int
	right        []uint32
	from         []uint32 // added to the sums, in rows that are fromStride apart; nil for none
	fromStride   int
	overwrites   bool     // whether kernels may leave sums in from, before they are stored
	sums         []uint32 // the results, in rows that are stride apart, or
	short        []uint16 // the results in bfloat16; a strip of integers has none
	stride       int
	tile         []uint32 // memory for a tile
	ahead        []uint32 // a panel of the right operand to prefetch; nil for none
}

// A tileKernel multiplies panels over the given number of words, and stores the tile of sums in c,
// or adds it to c if accumulate is set.
type tileKernel func(words int, a, b, c []uint32, stride int, accumulate bool)

func (k tileKernel) tileByTile(f *format, s *strip) {
	for i := range s.tiles {
		from, at := s.from, i*f.rows*s.stride
		if from != nil {
			from = from[i*f.rows*s.fromStride:]
		}
		tile, stride := s.tile, f.columns // where the kernel leaves its sums
		switch {
		case s.overwrites:
			tile, stride = from, s.fromStride
		case s.short == nil:
			tile, stride = s.sums[at:], s.stride
		}
		if next := f.rows * stride; (s.overwrites || s.short == nil) && i+1 < s.tiles {
			// The next tile is far away in memory, so prefetch it.
			f.prefetch(unsafe.Pointer(&tile[next]), 4*stride, f.rows, 4*f.columns)
		}
		if from != nil && !s.overwrites {
			for r := range f.rows {
				copy(tile[r*stride:], from[r*s.fromStride:][:f.columns])
			}
		}
		k(s.words, s.left[i*s.apart:], s.right, tile, stride, from != nil)
		if s.short != nil || unsafe.SliceData(tile) != unsafe.SliceData(s.sums[at:]) {
			f.store(tile, stride, s.sums, s.short, at, s.stride, f.rows, f.columns)
		}
	}
}

// store copies rows of a tile, which are tileStride apart, to the results, beginning at index at:
// rounded to short or, if short is nil, unrounded to sums.
func (f *format) store(
	tile []uint32, tileStride int, sums []uint32, short []uint16, at, stride, rows, columns int,
) {
	if short != nil {
		f.narrow(short[at:], stride, tile, tileStride, rows, columns)
		return
	}
	for r := range rows {
		copy(sums[at+r*stride:][:columns], tile[r*tileStride:])
	}
}

// A block is the product of a packed block of the left operand and a block of a right panel,
// together with the destination of its sums.
type block struct {
	row, rows, column, columns int // of the part's output
	depth                      int // words
	left, right, ahead         []uint32

	from       []uint32 // added to the sums, from the first one on; nil for none
	fromStride int
	sums       []uint32 // where sums are stored, from the first one on, or
	short      []uint16 // where they are stored in bfloat16
	stride     int
	overwrites bool // whether from may be overwritten, as nothing reads it any more
	// Whether from and the sums are in the task's memory, where all tiles are complete.
	fromPartial, toPartial bool
	finishes               bool // sums of integers are complete, and become results by [finish]
}

// destination sets where the sums of a block go. begins and ends report whether the block is the
// first or the last of a panel; in between, sums are kept in the task's memory. first and last
// report whether the panel has the first or the last words of the contracted dimension.
func (o *rightPart) destination(b *block, begins, ends, first, last bool, w *workspace) {
	at := o.at(b.row, b.column)
	b.fromStride, b.stride = o.n, o.n
	switch {
	case !begins:
		b.from, b.fromStride, b.fromPartial = w.partialSums(b.rows, o.format), o.format.columns, true
	case !first:
		b.from, b.overwrites = o.sums[at:], true
	case o.out.Addend != nil:
		b.from = asWords(o.out.Addend)[at:]
		b.overwrites = unsafe.SliceData(o.out.Addend) == unsafe.SliceData(o.out.Float32)
	}
	switch {
	case !ends:
		b.sums, b.stride, b.toPartial = w.partialSums(b.rows, o.format), o.format.columns, true
	case !last:
		b.sums = o.sums[at:]
	case o.out.BFloat16 != nil:
		b.short = o.out.BFloat16[at:]
	default:
		b.sums = asWords(o.out.Float32)[at:]
	}
	b.finishes = o.format.integers && last
}

func (w *workspace) partialSums(rows int, f *format) []uint32 {
	return w.partial.get(roundUp(rows, f.rows) * f.columns)
}

// multiplyBlock multiplies a block: whole tiles as a strip if their sums are stored unchanged, and
// the rest tile by tile.
func (o *rightPart) multiplyBlock(b *block, w *workspace) {
	f, s := o.format, &w.strip
	*s = strip{words: b.depth, apart: f.rows * b.depth, right: b.right}
	s.tile, s.ahead = w.tile, b.ahead
	done := 0
	if !b.finishes {
		// the task's memory also has space for missing rows and columns
		whole := b.toPartial && (b.fromPartial || b.from == nil)
		switch {
		case whole:
			s.tiles = divideUp(b.rows, f.rows)
		case b.columns == f.columns:
			s.tiles = b.rows / f.rows
		}
		if done = s.tiles * f.rows; done > 0 {
			s.left, s.from, s.fromStride, s.overwrites = b.left, b.from, b.fromStride, b.overwrites
			s.sums, s.short, s.stride = b.sums, b.short, b.stride
			f.multiply(f, s)
		}
	}
	for ; done < b.rows; done += f.rows {
		o.tile(b, done, w)
	}
}

// tile multiplies one left panel of the block by the right panel, and moves the sums to their
// destination through the task's memory.
func (o *rightPart) tile(b *block, row int, w *workspace) {
	f, s := o.format, &w.strip
	rows := min(b.rows-row, f.rows)
	s.tiles, s.left, s.from, s.overwrites = 1, b.left[row*b.depth:], nil, false
	s.sums, s.short, s.stride = w.tile, nil, f.columns
	if b.from != nil {
		s.from, s.fromStride = b.from[row*b.fromStride:], b.fromStride
		if !b.fromPartial && (rows < f.rows || b.columns < f.columns) {
			// The kernel adds to a whole tile, so that incomplete tiles have the same order of sums.
			for r := range rows {
				copy(w.tile[r*f.columns:][:b.columns], s.from[r*s.fromStride:])
			}
			s.from, s.fromStride, s.overwrites = w.tile, f.columns, true
		}
	}
	f.multiply(f, s)
	if b.finishes {
		o.finish(b, row, rows, w)
		return
	}
	f.store(w.tile, f.columns, b.sums, b.short, row*b.stride, b.stride, rows, b.columns)
}
