package matmul

import "unsafe"

// Sizes of the staging buffers between operands and panels, which must fit in the L1 cache.
const (
	stageWords   = 4096      // of all rows
	alongWords   = 128       // of each of up to 32 rows
	acrossWords  = tileWords // words along the contracted dimension at a time
	acrossLength = stageWords / acrossWords

	acrossColumns = 144 // packed directly at a time: long pieces of memory, but few panels
)

// A stage is a staging buffer between an operand and panels.
type stage struct {
	words     [stageWords]uint32
	float32s  [4 * acrossLength]float32
	bfloat16s [4 * acrossLength]uint16
	int8s     [4 * acrossLength]int8

	float32Slices  [4][]float32
	bfloat16Slices [4][]uint16
	int8Slices     [4][]int8
}

// A source is the part of an operand to be packed into panels: a range of rows (columns for a right
// operand) and a range of contracted elements.
type source struct {
	view         *view
	base         int // offset of the matrix in a batch
	row, rows    int
	first, count int // of the contracted elements
	height       int // rows of a panel
	tiled        bool
}

// tileWords is the size of a tile along the contracted dimension, in words. tileSize is the size of
// the largest block of sums that a kernel computes.
const (
	tileWords = 16
	tileSize  = 32 * 32
)

// words returns the number of words for the given number of contracted elements.
func (f *format) words(elements int) int {
	words := divideUp(elements, f.per)
	if f.tiled {
		return roundUp(words, tileWords)
	}
	return words
}

// pack packs into consecutive panels; the last one is padded with zeros. It may overwrite seven
// words after the last panel if the height is not a multiple of eight.
func (f *format) pack(dst []uint32, e Elements, s *source, st *stage) {
	if s.count == 0 {
		return // there may be no elements at all
	}
	switch {
	case e.Float32 != nil:
		pack(f, &f.float32s, dst, e.Float32, s, st, st.float32s[:], &st.float32Slices)
	case e.BFloat16 != nil:
		pack(f, &f.bfloat16s, dst, e.BFloat16, s, st, st.bfloat16s[:], &st.bfloat16Slices)
	default:
		pack(f, &f.int8s, dst, e.Int8, s, st, st.int8s[:], &st.int8Slices)
	}
}

func pack[T any](f *format, p *packer[T], dst []uint32, src []T, s *source, st *stage, elements []T,
	slices *[4][]T) {
	src = src[s.base:]
	// Read along the axis that is contiguous in memory.
	contracted, cross := &s.view.contracted, &s.view.cross
	if cross.inner.Stride == 1 && cross.inner.Size >= 4 &&
		(contracted.inner.Stride != 1 || contracted.size == 1) {
		packAcross(f, p, dst, src, s, st, elements, slices)
	} else {
		packAlong(f, p, dst, src, s, &st.words, elements)
	}
}

// packAlong reads row by row, packs each row into words, and transposes the words into the panel.
func packAlong[T any](f *format, p *packer[T], dst []uint32, src []T, s *source,
	words *[stageWords]uint32, elements []T) {
	total := f.words(s.count)
	for row := 0; row < s.rows; row += s.height {
		panel := dst[row*total:]
		done := 0
		straight, unit := p.straightAlong, 8
		if s.tiled {
			straight, unit = p.tiledAlong, tileWords
		}
		if whole := s.count / f.per / unit * unit; straight != nil && whole > 0 &&
			s.straight(row, p.exact) {
			ld := s.view.cross.stride
			from := (s.row+row)*ld + s.first
			if row+s.height < s.rows {
				size := int(unsafe.Sizeof(src[0]))
				reach := s.count * size
				if p.exact {
					reach = min(reach, 128) // the hardware prefetcher does the rest
				}
				at := &src[from+s.height*ld]
				f.prefetch(unsafe.Pointer(at), ld*size, min(s.height, s.rows-row-s.height), reach)
			}
			straight(panel, s.height, src[from:], ld, whole)
			done = whole
		}
		for w := done; w < total; w += alongWords {
			n := min(alongWords, total-w)
			first := w * f.per
			count := min(n*f.per, s.count-first)
			for r := range s.height {
				to := words[r*alongWords:][:n]
				if row+r < s.rows {
					p.along(to, gather(&s.view.contracted, elements, src[s.view.cross.at(s.row+row+r):],
						s.first+first, count))
				} else {
					clear(to)
				}
			}
			if s.tiled {
				for at := 0; at < n; at += tileWords {
					for r := range s.height {
						to := (*[tileWords]uint32)(panel[(w+at)*s.height+r*tileWords:])
						*to = *(*[tileWords]uint32)(words[r*alongWords+at:])
					}
				}
			} else {
				f.transpose(panel[w*s.height:], s.height, words[:], alongWords, n)
			}
		}
	}
}

// straight reports whether the panel that begins at row is complete and each of its rows is
// contiguous. Unless exact is set, rows up to the next multiple of eight must exist, too.
func (s *source) straight(row int, exact bool) bool {
	rows := s.height
	if !exact {
		rows = roundUp(rows, 8)
	}
	return s.view.contracted.table == nil && s.view.cross.table == nil &&
		s.view.contracted.stride == 1 &&
		row+s.height <= s.rows && s.row+row+rows <= s.view.cross.size
}

// packAcross packs an operand that is contiguous across the rows: directly if whole vectors can be
// read, else through the stage.
func packAcross[T any](f *format, p *packer[T], dst []uint32, src []T, s *source, st *stage,
	elements []T, slices *[4][]T) {
	total, whole, pack := f.words(s.count), s.count/f.per, p.straightAcross
	if s.tiled {
		whole, pack = whole/tileWords*tileWords, p.tiledAcross
	}
	straight := 0 // rows
	if pack != nil && whole > 0 && s.view.cross.table == nil && s.view.contracted.table == nil {
		if p.exact {
			straight = s.rows
		} else if spare := s.view.cross.size - s.row - roundUp(s.height, 8); spare >= 0 {
			// The last vector of the last panel must not extend beyond the last row.
			straight = min(s.rows/s.height, spare/s.height+1) * s.height
		}
	}
	group := max(1, acrossColumns/s.height) * s.height
	// Vectors may extend beyond the end of a panel, where the next panel overwrites them. So panels
	// must be packed one at a time.
	if s.height%8 != 0 && !p.exact {
		group = s.height
	}
	ld := s.view.contracted.stride
	for i := 0; i < straight; i += group {
		n := min(group, straight-i)
		pack(dst[i*total:], s.height*total, s.height, n, src[s.first*ld+s.row+i:], ld, whole)
		if whole < total {
			packStaged(f, p, dst, src, s, i, i+n, whole, st, elements, slices)
		}
	}
	if straight < s.rows {
		packStaged(f, p, dst, src, s, straight, s.rows, 0, st, elements, slices)
	}
}

// packStaged packs a range of rows, beginning at the given word. It reads the same element of many
// rows at a time, combines the elements of each row into words, and copies these to the panels.
func packStaged[T any](f *format, p *packer[T], dst []uint32, src []T, s *source, from, to,
	word int, st *stage, elements []T, slices *[4][]T) {
	total := f.words(s.count)
	stretch := acrossLength / s.height * s.height
	for row := from; row < to; row += stretch {
		n := min(stretch, to-row)
		padded := roundUp(n, s.height)
		for w := word; w < total; w += acrossWords {
			chunk := min(acrossWords, total-w)
			for i := range chunk {
				words := st.words[i*acrossLength:]
				for j := range f.per {
					part := elements[j*acrossLength:][:n]
					if k := (w+i)*f.per + j; k < s.count {
						part = gather(&s.view.cross, part, src[s.view.contracted.at(s.first+k):], s.row+row, n)
					} else {
						clear(part)
					}
					slices[j] = part
				}
				p.across(words[:n], slices)
				clear(words[n:padded])
			}
			for r := 0; r < padded; r += s.height {
				if to, words := dst[(row+r)*total+w*s.height:], st.words[r:]; s.tiled {
					for r := range s.height {
						for w := range tileWords {
							to[r*tileWords+w] = words[w*acrossLength+r]
						}
					}
				} else {
					for w := range chunk {
						copy(to[w*s.height:][:s.height], words[w*acrossLength:])
					}
				}
			}
		}
	}
	*slices = [4][]T{}
}

// gather returns n elements, beginning at index from: a slice of src if they are contiguous, and
// otherwise a copy in stage.
func gather[T any](a *axes, stage, src []T, from, n int) []T {
	if a.table == nil {
		src = src[min(from*a.stride, len(src)):]
		if a.stride == 1 {
			return src[:n]
		}
		stage = stage[:n]
		for i := range stage {
			stage[i] = src[i*a.stride]
		}
		return stage
	}
	stage = stage[:n]
	table := a.table[from : from+n]
	if a.inner.Stride == 1 && a.inner.Size >= 8 {
		for done := 0; done < n; {
			run := min(a.inner.Size-(from+done)%a.inner.Size, n-done)
			copy(stage[done:done+run], src[table[done]:])
			done += run
		}
		return stage
	}
	for i, at := range table {
		stage[i] = src[at]
	}
	return stage
}
