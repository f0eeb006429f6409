package matmul

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cage-qat/cage/internal/halffloat"
)

// TestVectorRounding checks that packers round like package halffloat, for all upper halves of
// words with lower halves that round up, down, and to even.
func TestVectorRounding(t *testing.T) {
	var x []float32
	var want []uint32
	for upper := range uint32(1 << 16) {
		for _, lower := range []uint32{0, 1, 0x7fff, 0x8000, 0x8001, 0xffff} {
			number := math.Float32frombits(upper<<16 | lower)
			x, want = append(x, number), append(want, uint32(halffloat.ToBFloat16(number))<<16)
		}
	}
	eachTier(t, func(t *testing.T, tier *Tier) {
		f := tier.bfloat16
		for _, height := range []int{f.rows, f.columns} {
			for name, l := range map[string]Layout{
				"along":  {Cross: []Axis{{height, len(x) / height}}, Contracted: []Axis{{len(x) / height, 1}}},
				"across": {Cross: []Axis{{height, 1}}, Contracted: []Axis{{len(x) / height, height}}},
				"table": {Cross: []Axis{{2, 1}, {height / 2, 2}},
					Contracted: []Axis{{len(x) / height, height}}},
			} {
				v, err := newView("", l)
				if err != nil {
					t.Fatal(err)
				}
				s := &source{view: &v, rows: height, count: v.contracted.size, height: height}
				packed := make([]uint32, height*f.words(s.count)+7)
				f.pack(packed, Elements{Float32: x}, s, new(stage))
				for i := range s.count {
					for r := range height {
						got := packed[i/f.per*height+r] << (32 / f.per * (f.per - 1 - i%f.per)) &^ 0xffff
						if at := v.cross.at(r) + v.contracted.at(i); got != want[at] {
							t.Fatalf("%s: %v becomes %#x, want %#x", name, x[at], got, want[at])
						}
					}
				}
			}
		}
	})
}

// TestFinish checks that vector code finishes tiles like plain Go, bit for bit, and writes no more.
func TestFinish(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	eachTier(t, func(t *testing.T, tier *Tier) {
		for range 2000 {
			f := finish{rows: 1 + r.IntN(32), columns: min(1+r.IntN(64), 32), corrections: zeros,
				columnScales: ones}
			f.sumStride, f.outStride = f.columns+r.IntN(9), f.columns+r.IntN(9)
			f.sums = make([]uint32, f.rows*f.sumStride)
			for i := range f.sums {
				f.sums[i] = r.Uint32()
			}
			if r.IntN(2) == 0 {
				f.corrections = make([]int32, f.columns)
				for i := range f.corrections {
					f.corrections[i] = int32(r.Uint32())
				}
			}
			f.rowScales = floats(r, f.rows)
			if r.IntN(2) == 0 {
				f.columnScales = floats(r, f.columns)
			}
			start := floats(r, f.rows*f.outStride)
			want, got := slices.Clone(start), slices.Clone(start)
			f.out = want
			f.portable()
			if r.IntN(2) == 0 {
				rounded, short := make([]uint16, len(want)), make([]uint16, len(want))
				narrowPortable(rounded, f.outStride, asWords(want), f.outStride, f.rows, f.columns)
				f.out, f.short = nil, short
				tier.codes.finish(&f)
				for i, x := range rounded {
					if y := short[i]; x != y && !(x&0x7f80 == 0x7f80 && y&0x7f80 == 0x7f80 && x&0x7f > 0 &&
						y&0x7f > 0) {
						t.Fatalf("%+v: element %d is %#x, want %#x", f, i, y, x)
					}
				}
				continue
			}
			f.out = got
			tier.codes.finish(&f)
			for i := range want {
				if math.Float32bits(got[i]) != math.Float32bits(want[i]) &&
					!(got[i] != got[i] && want[i] != want[i]) {
					t.Fatalf("%+v: element %d is %v, want %v", f, i, got[i], want[i])
				}
			}
		}
	})
}

// TestBytes checks that formats with an offset add it to every byte, and that they sum bytes.
func TestBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	eachTier(t, func(t *testing.T, tier *Tier) {
		if !tier.codes.unsigned {
			t.Skip("codes have no offset")
		}
		for n := range 150 {
			words, wantWords := guarded[uint32](t, n, n%2 == 0), make([]uint32, n)
			sums, wantSums := make([]int32, 32), make([]int32, 32)
			for i := range words {
				words[i] = r.Uint32()
				for at := 0; at < 32; at += 8 {
					x := uint8(words[i] >> at)
					wantWords[i] |= uint32(x+offset) << at
					if i < n/32*32 {
						wantSums[i%32] += int32(int8(x))
					}
				}
			}
			tier.codes.addColumns(sums, words[:n/32*32])
			if !slices.Equal(sums, wantSums) {
				t.Errorf("sums of %d words: %d, want %d", n, sums, wantSums)
			}
			tier.codes.shift(words)
			if !slices.Equal(words, wantWords) {
				t.Errorf("%d shifted words are %x, want %x", n, words, wantWords)
			}
		}
	})
}

// TestKernelsCheck checks that a kernel panics before it accesses memory outside a slice.
func TestKernelsCheck(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		for kind, f := range []*format{tier.bfloat16, tier.float32, tier.codes} {
			tile, words := f.rows*f.columns, f.words(5*f.per)
			for i := range 5 {
				s := &strip{words: words, tiles: 2, apart: words * f.rows, stride: f.columns,
					fromStride: f.columns, tile: make([]uint32, tile)}
				s.left, s.right, s.from, s.sums = make([]uint32, 2*words*f.rows),
					make([]uint32, words*f.columns), make([]uint32, 2*tile), make([]uint32, 2*tile)
				if i == 4 {
					if f.integers {
						continue
					}
					s.sums, s.short = nil, make([]uint16, 2*tile)
				}
				f.multiply(f, s)
				if i == 4 {
					s.short = s.short[: 2*tile-1 : 2*tile-1]
				} else {
					slice := []*[]uint32{&s.left, &s.right, &s.from, &s.sums}[i]
					*slice = (*slice)[: len(*slice)-1 : len(*slice)-1]
				}
				func() {
					defer func() {
						if recover() == nil {
							t.Errorf("format %d, slice %d: no panic", kind, i)
						}
					}()
					f.multiply(f, s)
				}()
			}
		}
	})
}
