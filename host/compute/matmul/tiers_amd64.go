//go:build amd64 && goexperiment.simd

package matmul

import (
	"encoding/binary"
	"slices"
	"unsafe"

	"golang.org/x/sys/cpu"
)

type ptr = unsafe.Pointer

//go:generate go run ../../../tools/kernelgen .

// processorTiers lists the tiers besides the portable one, the fastest first.
func processorTiers() []*Tier {
	x := &cpu.X86
	if !x.HasAVX2 || !x.HasFMA {
		return nil
	}
	var all []*Tier
	if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512VL && x.HasAVX512DQ {
		if t := amx(); t != nil {
			all = append(all, t)
		}
		all = append(all, tiers512(x.HasAVX512VNNI, x.HasAVX512BF16, fastBFloat16(vendor()))...)
	}
	return append(all, &Tier{"avx2", formatFloats256, formatSingles256, formatPairs256})
}

// tiers512 lists the tiers with AVX-512, the fastest first.
func tiers512(vnni, bf16, fast bool) (all []*Tier) {
	if vnni {
		all = append(all, &Tier{"avx512vnni", formatFloats512, formatSingles512, formatQuads512})
	}
	if vnni && bf16 {
		all = append(all, &Tier{"avx512bf16", formatHalves512, formatSingles512, formatQuads512})
		if fast {
			slices.Reverse(all)
		}
	}
	return append(all, &Tier{"avx512", formatFloats512, formatSingles512, formatPairs256})
}

// fastBFloat16 reports whether VDPBF16PS is faster than FMA on the vendor's processors. On AMD it
// has twice the throughput of FMA, on Intel half. Measuring it would make results irreproducible.
func fastBFloat16(vendor string) bool { return vendor == "AuthenticAMD" }

func vendor() string {
	var name []byte
	b, d, c := cpuidVendor()
	for _, x := range []uint32{b, d, c} {
		name = binary.LittleEndian.AppendUint32(name, x)
	}
	return string(name)
}

// cpuidVendor returns the registers of CPUID leaf 0 that hold the vendor's name.
//
//go:noescape
func cpuidVendor() (b, d, c uint32)

var helpers256 = &helpers{
	transpose: transpose256, finish: finish256OrShort, narrow: narrow256, prefetch: prefetchRows,
}

var helpers512 = &helpers{
	transpose: transpose512, shift: shift512, addColumns: addColumns512, finish: finish512,
	narrow: narrow256, prefetch: prefetchRows,
}

var formatFloats256 = &format{
	rows: 6, columns: 16, per: 1, cut: &blocksForVectors,
	multiply: checked(floats256).tileByTile,
	float32s: wordsOfFloat32s, bfloat16s: wordsOfBFloat16s, helpers: helpers256,
}

var formatFloats512 = &format{
	rows: 12, columns: 32, per: 1, cut: &blocksForVectors,
	multiply: strip512(floats512),
	float32s: packer[float32]{
		along: wordsOfFloat32s.along, across: wordsOfFloat32s.across, exact: true,
		straightAlong:  along512[float32](alongRounded12, alongRounded32, 1, 1),
		straightAcross: across512[float32](acrossRounded12, acrossRounded32, 1),
	},
	bfloat16s: wordsOfBFloat16s512, helpers: helpers512,
}

var (
	formatSingles256 = formatFloats256.packing(unroundedFloat32s)
	formatSingles512 = formatFloats512.packing(packer[float32]{
		along: unroundedFloat32s.along, across: unroundedFloat32s.across, exact: true,
		straightAlong:  along512[float32](alongWords12, alongWords32, 1, 1),
		straightAcross: across512[float32](acrossWords12, acrossWords32, 1),
	})
)

var formatHalves512 = &format{
	rows: 12, columns: 32, per: 2, cut: &blocksForVectors,
	multiply: strip512(halves512),
	float32s: packer[float32]{
		along: halvesOfFloat32s, across: halvesOfFloat32sAcross, exact: true,
		straightAlong:  along512[float32](alongRoundedHalves12, alongRoundedHalves32, 2, 1),
		straightAcross: across512[float32](acrossRoundedHalves12, acrossRoundedHalves32, 2),
	},
	bfloat16s: packer[uint16]{
		along: copyAlong[uint16], across: halvesAcross, exact: true,
		straightAlong:  along512[uint16](alongWords12, alongWords32, 2, 1),
		straightAcross: across512[uint16](acrossHalves12, acrossHalves32, 2),
	},
	helpers: helpers512,
}

var formatPairs256 = &format{
	integers: true, rows: 6, columns: 16, per: 2, cut: &blocksForVectors,
	multiply: checked(pairs256).tileByTile,
	int8s: packer[int8]{
		along: pairsAlong, across: pairsAcross, straightAlong: alongBy[int8](transposePairs8, 2),
		straightAcross: acrossBy[int8](acrossPairs, 2),
	},
	helpers: helpers256,
}

var formatQuads512 = &format{
	integers: true, rows: 12, columns: 32, per: 4, unsigned: true,
	cut: &blocksForVectors, multiply: strip512(quads512),
	int8s: packer[int8]{
		along: copyAlong[int8], across: quadsAcross, exact: true,
		straightAlong:  along512[int8](alongWords12, alongWords32, 4, 1),
		straightAcross: across512[int8](acrossQuads12, acrossQuads32, 4),
	},
	helpers: helpers512,
}

// Packers that several formats use.
var (
	wordsOfFloat32s = packer[float32]{
		along: roundFloat32s, across: acrossOne(roundFloat32s),
		straightAlong:  alongBy[float32](transposeRounded8, 1),
		straightAcross: acrossBy[float32](acrossRounded, 1),
	}
	unroundedFloat32s = packer[float32]{
		along: copyFloat32s, across: acrossOne(copyFloat32s),
		straightAlong:  alongBy[float32](transpose8, 1),
		straightAcross: acrossBy[float32](acrossSingles, 1),
	}
	wordsOfBFloat16s = packer[uint16]{
		along: widenBFloat16s, across: acrossOne(widenBFloat16s),
		straightAlong:  alongBy[uint16](transposeWidened8, 1),
		straightAcross: acrossBy[uint16](acrossWidened, 1),
	}
)

var wordsOfBFloat16s512 = packer[uint16]{
	along: wordsOfBFloat16s.along, across: wordsOfBFloat16s.across, exact: true,
	straightAlong:  along512[uint16](alongWidened12, alongWidened32, 1, 2),
	straightAcross: across512[uint16](acrossWidened12, acrossWidened32, 1),
}

// checked turns an assembly function for tiles of 6 × 16 into a kernel. The kernel panics if the
// function would access memory outside the slices.
func checked(f func(words int, a, b, c *uint32, stride int, accumulate bool)) tileKernel {
	return func(words int, a, b, c []uint32, stride int, accumulate bool) {
		if words < 0 || stride < 16 || len(a) < words*6 || len(b) < words*16 || len(c) < 5*stride+16 {
			panic("matmul: a kernel would leave its slices")
		}
		f(words, unsafe.SliceData(a), unsafe.SliceData(b), &c[0], stride, accumulate)
	}
}

type strip512Kernel func(words, tiles int, left *uint32, apart int, right, from *uint32,
	fromStride int, to unsafe.Pointer, stride int, short bool, ahead *uint32, aheadWords int)

// strip512 turns an assembly function into a format's kernel, with the checks of [strip.checked].
func strip512(f strip512Kernel) func(*format, *strip) {
	return func(of *format, s *strip) {
		to, ahead := s.checked(of, 1)
		f(s.words, s.tiles, unsafe.SliceData(s.left), s.apart, unsafe.SliceData(s.right),
			unsafe.SliceData(s.from), s.fromStride, to, s.stride, s.short != nil,
			unsafe.SliceData(ahead), len(ahead))
	}
}

// checked panics if a kernel for strips of 32 columns would access memory outside the slices, or if
// the number of words is not a multiple of unit. It returns where the results go, and the panel to
// prefetch, which is the right panel itself if there is no other.
func (s *strip) checked(of *format, unit int) (to unsafe.Pointer, ahead []uint32) {
	reach := func(stride int) int { return (of.rows*s.tiles-1)*stride + 32 }
	leaves := s.words < 0 || s.words%unit != 0 || s.tiles < 1 || s.apart < 0 || s.stride < 32 ||
		len(s.left) < (s.tiles-1)*s.apart+of.rows*s.words || len(s.right) < 32*s.words
	if s.short != nil {
		leaves = leaves || of.integers || len(s.short) < reach(s.stride)
		to = unsafe.Pointer(unsafe.SliceData(s.short))
	} else {
		leaves = leaves || len(s.sums) < reach(s.stride)
		to = unsafe.Pointer(unsafe.SliceData(s.sums))
	}
	if leaves || s.from != nil && (s.fromStride < 32 || len(s.from) < reach(s.fromStride)) {
		panic("matmul: a kernel would leave its slices")
	}
	if len(s.ahead) == 0 {
		return to, s.right
	}
	return to, s.ahead
}

func floats256(words int, a, b, c *uint32, stride int, accumulate bool)
func pairs256(words int, a, b, c *uint32, stride int, accumulate bool)
func floats512(words, tiles int, left *uint32, apart int, right, from *uint32, fromStride int,
	to ptr, stride int, short bool, ahead *uint32, aheadWords int)
func halves512(words, tiles int, left *uint32, apart int, right, from *uint32, fromStride int,
	to ptr, stride int, short bool, ahead *uint32, aheadWords int)
func quads512(words, tiles int, left *uint32, apart int, right, from *uint32, fromStride int,
	to ptr, stride int, short bool, ahead *uint32, aheadWords int)
func transpose8(dst *uint32, stride int, src ptr, ld, blocks int)
func transposeWidened8(dst *uint32, stride int, src ptr, ld, blocks int)
func transposePairs8(dst *uint32, stride int, src ptr, ld, blocks int)
func transposeRounded8(dst *uint32, stride int, src ptr, ld, blocks int)

//go:noescape
func prefetchRows(at ptr, stride, rows, bytes int)

//go:noescape
func finishCodes(rows, vectors int, sums *uint32, sumStride int, out *float32, outStride int,
	corrections *int32, rowScales, columnScales *float32)

func transpose256(dst []uint32, stride int, src []uint32, ld, words int) {
	whole := words &^ 7
	transposeBy(transpose8, 1, dst, stride, src, ld, whole)
	if whole < words {
		transposePortable(dst[whole*stride:], stride, src[whole:], ld, words-whole)
	}
}

// Types of assembly functions that pack eight rows by eight words, or panels of columns.
type (
	transposeKernel func(dst *uint32, stride int, src ptr, ld, blocks int)
	acrossKernel    func(dst *uint32, panel, height, panels int, src ptr, ld, words int)
)

// alongBy turns an assembly function for words of per elements into a packer function.
func alongBy[T any](f transposeKernel, per int) packAlongFunc[T] {
	return func(dst []uint32, height int, src []T, ld, words int) {
		transposeBy(f, per, dst, height, src, ld, words)
	}
}

// transposeBy transposes eight rows and eight words at a time, the last rows first, so that surplus
// rows of an incomplete group are overwritten.
func transposeBy[T any](
	f transposeKernel, per int, dst []uint32, stride int, src []T, ld, words int,
) {
	size := int(unsafe.Sizeof(src[0]))
	for r := roundUp(stride, 8) - 8; r >= 0 && words > 0; r -= 8 {
		if words%8 != 0 || len(src) < (r+7)*ld+words*per || len(dst) < (words-1)*stride+r+8 {
			panic("matmul: a transposition would leave its slices")
		}
		f(&dst[r], stride, unsafe.Pointer(&src[r*ld]), ld*size, words/8)
	}
}

// acrossBy turns an assembly function for words of per rows into a packer function.
func acrossBy[T any](f acrossKernel, per int) packAcrossFunc[T] {
	return func(dst []uint32, panel, height, columns int, src []T, ld, words int) {
		panels := columns / height
		reach := (panels-1)*height + roundUp(height, 8)
		if panels < 1 || words < 1 || len(src) < (words*per-1)*ld+reach ||
			len(dst) < (panels-1)*panel+(words-1)*height+roundUp(height, 8) {
			panic("matmul: a packer would leave its slices")
		}
		f(&dst[0], panel, height, panels, unsafe.Pointer(&src[0]), ld*int(unsafe.Sizeof(src[0])), words)
	}
}

func acrossRounded(dst *uint32, panel, height, panels int, src ptr, ld, words int)
func acrossSingles(dst *uint32, panel, height, panels int, src ptr, ld, words int)
func acrossWidened(dst *uint32, panel, height, panels int, src ptr, ld, words int)
func acrossPairs(dst *uint32, panel, height, panels int, src ptr, ld, words int)

func transpose512(dst []uint32, stride int, src []uint32, ld, words int) {
	if stride != 12 && stride != 32 {
		transpose256(dst, stride, src, ld, words)
		return
	}
	whole := words &^ 7
	if whole > 0 {
		along512[uint32](alongWords12, alongWords32, 1, 1)(dst, stride, src, ld, whole)
	}
	if whole < words {
		transposePortable(dst[whole*stride:], stride, src[whole:], ld, words-whole)
	}
}

// Types of assembly functions that pack panels of 12 or 32 rows, or of 12 or 32 columns.
type (
	along512Kernel  func(dst *uint32, src ptr, ld, blocks int)
	across512Kernel func(dst *uint32, panel, panels int, columns uint32, src ptr, ld, words int)
)

// along512 turns assembly functions for panels of 12 and of 32 rows into a packer function. A word
// has per elements, and each word in memory becomes expand words of a panel.
func along512[T any](f12, f32 along512Kernel, per, expand int) packAlongFunc[T] {
	return func(dst []uint32, height int, src []T, ld, words int) {
		if words < 1 || words%(4*expand) != 0 || len(src) < (height-1)*ld+words*per ||
			len(dst) < (words-1)*height+max(height, 16) {
			panic("matmul: a packer would leave its slices")
		}
		apart, blocks := ld*int(unsafe.Sizeof(src[0])), words/(4*expand)
		switch height {
		case 12:
			f12(&dst[0], unsafe.Pointer(&src[0]), apart, blocks)
		case 32:
			f32(&dst[0], unsafe.Pointer(&src[0]), apart, blocks)
			f32(&dst[16], unsafe.Pointer(&src[16*ld]), apart, blocks)
		default:
			panic("matmul: there is no packer for such a panel")
		}
	}
}

// across512 turns assembly functions for panels of 12 and of 32 columns into a packer function. A
// word has an element of each of per rows.
func across512[T any](f12, f32 across512Kernel, per int) packAcrossFunc[T] {
	return func(dst []uint32, panel, height, columns int, src []T, ld, words int) {
		panels, rest := columns/height, columns%height
		if columns < 1 || words < 1 || len(src) < (words*per-1)*ld+columns ||
			len(dst) < (divideUp(columns, height)-1)*panel+words*height {
			panic("matmul: a packer would leave its slices")
		}
		f := f12
		if height == 32 {
			f = f32
		} else if height != 12 {
			panic("matmul: there is no packer for such a panel")
		}
		apart := ld * int(unsafe.Sizeof(src[0]))
		if panels > 0 {
			f(&dst[0], panel, panels, 1<<height-1, unsafe.Pointer(&src[0]), apart, words)
		}
		if rest > 0 {
			f(&dst[panels*panel], panel, 1, 1<<rest-1, unsafe.Pointer(&src[panels*height]), apart, words)
		}
	}
}

func alongWords12(dst *uint32, src ptr, ld, blocks int)
func alongWords32(dst *uint32, src ptr, ld, blocks int)
func alongRounded12(dst *uint32, src ptr, ld, blocks int)
func alongRounded32(dst *uint32, src ptr, ld, blocks int)
func alongRoundedHalves12(dst *uint32, src ptr, ld, blocks int)
func alongRoundedHalves32(dst *uint32, src ptr, ld, blocks int)
func alongWidened12(dst *uint32, src ptr, ld, blocks int)
func alongWidened32(dst *uint32, src ptr, ld, blocks int)
func acrossWords12(dst *uint32, panel, panels int, columns uint32, src ptr, ld, words int)
func acrossWords32(dst *uint32, panel, panels int, columns uint32, src ptr, ld, words int)
func acrossRounded12(dst *uint32, panel, panels int, columns uint32, src ptr, ld, words int)
func acrossRounded32(dst *uint32, panel, panels int, columns uint32, src ptr, ld, words int)
func acrossWidened12(dst *uint32, panel, panels int, columns uint32, src ptr, ld, words int)
func acrossWidened32(dst *uint32, panel, panels int, columns uint32, src ptr, ld, words int)
func acrossRoundedHalves12(dst *uint32, panel, panels int, columns uint32, src ptr, ld, words int)
func acrossRoundedHalves32(dst *uint32, panel, panels int, columns uint32, src ptr, ld, words int)
func acrossHalves12(dst *uint32, panel, panels int, columns uint32, src ptr, ld, words int)
func acrossHalves32(dst *uint32, panel, panels int, columns uint32, src ptr, ld, words int)
func acrossQuads12(dst *uint32, panel, panels int, columns uint32, src ptr, ld, words int)
func acrossQuads32(dst *uint32, panel, panels int, columns uint32, src ptr, ld, words int)

//go:noescape
func shifted512(words *uint32, blocks int)

//go:noescape
func finishCodes512(rows int, sums *uint32, sumStride int, out ptr, outStride int,
	corrections *int32, rowScales, columnScales *float32, short bool)

//go:noescape
func columnSums512(sums *int32, panel *uint32, words int)
