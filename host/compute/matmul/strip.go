package matmul

import "unsafe"

// A strip is a column of tiles, one below the other: panels of the left operand times one panel of the right one.
type strip struct {
	words, tiles int
	steps        int      // words that a kernel with headroom adds up before it widens
	left         []uint32 // its panels begin apart words from each other
	apart        int
	right        []uint32
	from         []uint32 // what is added to the sums, in rows that are fromStride apart; nil for nothing
	fromStride   int
	sums         []uint32 // the results, in rows that are stride apart, or
	short        []uint16 // the results in bfloat16; a strip of integers has none
	stride       int
	tile         []uint32 // memory for a tile
	ahead        []uint32 // a panel of the right operand that is worth asking for before it is needed; nil for none
}

// A tileKernel multiplies panels of so many words a row, and stores the tile of sums, or adds it to what is there. One with headroom adds
// up as many words as steps says before it widens.
type tileKernel func(words, steps int, a, b, c []uint32, stride int, accumulate bool)

// tileByTile computes a strip with a kernel that multiplies one tile at a time.
func (k tileKernel) tileByTile(f *format, s *strip) {
	for i := range s.tiles {
		left, from, at := s.left[i*s.apart:], s.from, i*f.rows*s.stride
		if i > 0 && from != nil {
			from = from[i*f.rows*s.fromStride:]
		}
		if s.short == nil && (from == nil || unsafe.SliceData(from) == unsafe.SliceData(s.sums[at:])) {
			if next := (i + 1) * f.rows * s.stride; i+1 < s.tiles {
				// The next tile's place in the output is far from this one's.
				f.prefetch(unsafe.Pointer(&s.sums[next]), 4*s.stride, f.rows, 4*f.columns)
			}
			k(s.words, s.steps, left, s.right, s.sums[at:], s.stride, from != nil)
			continue
		}
		k(s.words, s.steps, left, s.right, s.tile, f.columns, false)
		if from != nil {
			addRows(s.tile, f.columns, from, s.fromStride, f.rows, f.columns, f.integers)
		}
		f.store(s.tile, s.sums, s.short, at, s.stride, f.rows, f.columns)
	}
}

// addRows adds rows to sums.
func addRows(sums []uint32, stride int, x []uint32, xStride, rows, columns int, integers bool) {
	for r := range rows {
		to, x := sums[r*stride:][:columns], x[r*xStride:][:columns]
		if integers {
			for i := range to {
				to[i] += x[i]
			}
			continue
		}
		floats, x32 := asFloats(to), asFloats(x)
		for i := range floats {
			floats[i] = x32[i] + floats[i]
		}
	}
}

// store takes rows of a tile in memory to where the results are from one on: rounded to short, or if that is nil, to sums.
func (f *format) store(tile, sums []uint32, short []uint16, at, stride, rows, columns int) {
	if short != nil {
		f.narrow(short[at:], stride, tile, f.columns, rows, columns)
		return
	}
	for r := range rows {
		copy(sums[at+r*stride:][:columns], tile[r*f.columns:])
	}
}

// A destination says where sums of a part of the words go.
type destination struct {
	from     []uint32 // what they are added to, of the output's size; nil for nothing
	sums     []uint32 // where they are stored, of the output's size, or
	short    []uint16 // where they are in bfloat16
	finishes bool     // they are complete, and become results by [finish]
}

// destination says where sums over some words go: first, if these begin with the first word of all, and last, if they end with the last.
func (r *run) destination(first, last bool) (d destination) {
	finishes := r.finishes()
	switch {
	case !first:
		d.from = r.sums
	case !finishes && r.out.Addend != nil:
		d.from = asWords(r.out.Addend)
	}
	switch {
	case !last:
		d.sums = r.sums
	case r.out.BFloat16 != nil:
		d.short = r.out.BFloat16
	default:
		d.sums = asWords(r.out.Float32)
	}
	d.finishes = finishes && last
	return d
}

// finishes tells whether more is done to complete sums than to add to them: integers become floats, and scales multiply.
func (r *run) finishes() bool {
	return r.format.integers || r.scales.Rows != nil || r.scales.Columns != nil
}

// multiplyBlock multiplies a packed block of the left operand by a panel of the right one.
func (o *rightPart) multiplyBlock(left, right, ahead []uint32, depth, row, rows, column int, d *destination, w *workspace) {
	f, n := o.format, o.n
	columns := min(o.part.columns-column, f.columns)
	at := o.at(row, column)
	w.strip = strip{words: depth, steps: o.steps, apart: f.rows * depth, right: right, tile: w.tile, ahead: ahead}
	done := 0
	if columns == f.columns && !d.finishes && rows >= f.rows {
		s := &w.strip
		s.tiles = rows / f.rows
		done = s.tiles * f.rows
		s.left, s.stride, s.fromStride = left, n, n
		if d.from != nil {
			s.from = d.from[at:]
		}
		if d.short != nil {
			s.short = d.short[at:]
		} else {
			s.sums = d.sums[at:]
		}
		f.multiply(f, s)
	}
	for ; done < rows; done += f.rows {
		o.tile(left[done*depth:], row+done, min(rows-done, f.rows), column, columns, d, w)
	}
}

// tile multiplies two panels, and takes the sums to where they belong, through memory of the task.
func (o *rightPart) tile(left []uint32, row, rows, column, columns int, d *destination, w *workspace) {
	f, s, n := o.format, &w.strip, o.n
	at := o.at(row, column)
	s.tiles, s.left, s.short, s.sums, s.stride, s.from = 1, left, nil, w.tile, f.columns, nil
	full := rows == f.rows && columns == f.columns
	if full && d.from != nil {
		s.from, s.fromStride = d.from[at:], n
	}
	f.multiply(f, s)
	if !full && d.from != nil {
		addRows(w.tile, f.columns, d.from[at:], n, rows, columns, f.integers)
	}
	if d.finishes {
		if d.sums != nil && o.out.Addend == nil {
			o.finish(&w.finish, w.tile, o.out.Float32[at:], n, rows, columns, row, column)
			return
		}
		o.finish(&w.finish, w.tile, asFloats(w.tile), f.columns, rows, columns, row, column)
		if o.out.Addend != nil {
			addRows(w.tile, f.columns, asWords(o.out.Addend[at:]), n, rows, columns, false)
		}
	}
	f.store(w.tile, d.sums, d.short, at, n, rows, columns)
}
