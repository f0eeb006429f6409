package matmul

import "unsafe"

// Sizes of the stages between operands and panels, so that they stay in the first cache.
const (
	stageWords   = 4096 // of all rows
	alongWords   = 128  // of each of up to 32 rows
	acrossWords  = 16   // words along the sums at a time
	acrossLength = stageWords / acrossWords
)

// A stage is memory between an operand and panels.
type stage struct {
	words     [stageWords]uint32
	float32s  [4 * acrossLength]float32
	bfloat16s [4 * acrossLength]uint16
	int8s     [4 * acrossLength]int8
}

// A source is a part of an operand to be packed into panels: some of its rows (of a right operand, its columns), and some
// of what is summed over.
type source struct {
	view         *view
	base         int // offset of the matrix in a batch
	row, rows    int
	first, count int // of the contracted elements
	height       int // rows of a panel
}

// words is how many words along the sums the panels have.
func (f *format) words(elements int) int { return (elements + f.per - 1) / f.per }

// pack packs into consecutive panels; rows and elements that are missing in the last ones are zero. It may overwrite the
// seven words behind the last panel if its height is no multiple of eight.
func (f *format) pack(dst []uint32, e Elements, s *source, st *stage) {
	switch {
	case e.Float32 != nil:
		pack(f, &f.float32s, dst, e.Float32, s, &st.words, st.float32s[:])
	case e.BFloat16 != nil:
		pack(f, &f.bfloat16s, dst, e.BFloat16, s, &st.words, st.bfloat16s[:])
	default:
		pack(f, &f.int8s, dst, e.Int8, s, &st.words, st.int8s[:])
	}
}

func pack[T any](f *format, p *packer[T], dst []uint32, src []T, s *source, words *[stageWords]uint32, elements []T) {
	src = src[s.base:]
	// Read along what lies together in memory.
	contracted, cross := &s.view.contracted, &s.view.cross
	if cross.inner.Stride == 1 && cross.inner.Size >= 4 && (contracted.inner.Stride != 1 || contracted.size == 1) {
		packAcross(f, p, dst, src, s, words, elements)
	} else {
		packAlong(f, p, dst, src, s, words, elements)
	}
}

// packAlong reads row after row, makes words of each, and transposes them into the panel.
func packAlong[T any](f *format, p *packer[T], dst []uint32, src []T, s *source, words *[stageWords]uint32, elements []T) {
	total := f.words(s.count)
	for row := 0; row < s.rows; row += s.height {
		panel := dst[row*total:]
		done := 0
		if whole := s.count / f.per &^ 7; p.straight != nil && whole > 0 && s.straight(row) {
			from := s.view.cross.at(s.row+row) + s.first
			p.straight(panel, s.height, src[from:], s.view.cross.stride, whole)
			done = whole
		}
		for w := done; w < total; w += alongWords {
			n := min(alongWords, total-w)
			first := w * f.per
			count := min(n*f.per, s.count-first)
			for r := range s.height {
				to := words[r*alongWords:][:n]
				if row+r < s.rows {
					p.along(to, gather(&s.view.contracted, elements, src[s.view.cross.at(s.row+row+r):], s.first+first, count))
				} else {
					clear(to)
				}
			}
			f.transpose(panel[w*s.height:], s.height, words[:], alongWords, n)
		}
	}
}

// straight tells whether a panel's rows, up to the next multiple of eight, are all there, and each lies in one piece.
func (s *source) straight(row int) bool {
	rows := roundUp(s.height, 8)
	return s.view.contracted.table == nil && s.view.cross.table == nil && s.view.contracted.stride == 1 &&
		row+s.height <= s.rows && s.row+row+rows <= s.view.cross.size
}

// packAcross reads the same element of many rows at a time, makes words of several elements of each row, and distributes
// them to the panels.
func packAcross[T any](f *format, p *packer[T], dst []uint32, src []T, s *source, words *[stageWords]uint32, elements []T) {
	total := f.words(s.count)
	stretch := acrossLength / s.height * s.height
	contiguous := s.view.cross.table == nil && s.view.contracted.table == nil
	size := int(unsafe.Sizeof(src[0]))
	for row := 0; row < s.rows; row += stretch {
		n := min(stretch, s.rows-row)
		padded := (n + s.height - 1) / s.height * s.height
		for w := 0; w < total; w += acrossWords {
			chunk := min(acrossWords, total-w)
			if next := (w + acrossWords) * f.per; contiguous && next < s.count {
				ahead := min(acrossWords*f.per, s.count-next)
				at := &src[s.view.contracted.at(s.first+next)+s.row+row]
				f.prefetch(unsafe.Pointer(at), s.view.contracted.stride*size, ahead, n*size)
			}
			for i := range chunk {
				to := words[i*acrossLength:]
				var parts [4][]T
				for j := range f.per {
					stage := elements[j*acrossLength:][:n]
					if k := (w+i)*f.per + j; k < s.count {
						stage = gather(&s.view.cross, stage, src[s.view.contracted.at(s.first+k):], s.row+row, n)
					} else {
						clear(stage)
					}
					parts[j] = stage
				}
				p.across(to[:n], &parts)
				clear(to[n:padded])
			}
			for r := 0; r < padded; r += s.height {
				distribute(dst[(row+r)*total+w*s.height:], s.height, words[r:], chunk)
			}
		}
	}
}

// distribute copies rows of a stage to a panel. Copies of a known length are a few instructions.
func distribute(dst []uint32, height int, words []uint32, rows int) {
	switch height {
	case 6:
		for i := range rows {
			*(*[6]uint32)(dst[i*6:]) = *(*[6]uint32)(words[i*acrossLength:])
		}
	case 12:
		for i := range rows {
			*(*[12]uint32)(dst[i*12:]) = *(*[12]uint32)(words[i*acrossLength:])
		}
	case 16:
		for i := range rows {
			*(*[16]uint32)(dst[i*16:]) = *(*[16]uint32)(words[i*acrossLength:])
		}
	case 32:
		for i := range rows {
			*(*[32]uint32)(dst[i*32:]) = *(*[32]uint32)(words[i*acrossLength:])
		}
	default:
		for i := range rows {
			copy(dst[i*height:][:height], words[i*acrossLength:])
		}
	}
}

// gather returns n elements from an index on: a part of src where they are neighbours, and otherwise stage, filled.
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
