//go:build amd64 && goexperiment.simd

package matmul

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// amx returns the tier with AMX tiles, or nil. Its kernels for unrounded floats are AVX-512's.
func amx() *Tier {
	x := &cpu.X86
	if !x.HasAVX512VNNI || !x.HasAVX512BF16 || !x.HasAMXTile || !x.HasAMXBF16 || !x.HasAMXInt8 ||
		!mayUseTiles() {
		return nil
	}
	return &Tier{"amx", formatHalvesAMX, formatSingles512, formatQuadsAMX}
}

var formatHalvesAMX = &format{
	rows: 32, columns: 32, per: 2, tiled: true, cut: &blocksForTiles,
	multiply: stripAMX(halvesAMX),
	float32s: tiledToo(formatHalves512.float32s, alongRoundedHalvesTiled, acrossRoundedHalvesTiled,
		2),
	bfloat16s: tiledToo(formatHalves512.bfloat16s, alongTiled, acrossHalvesTiled, 2),
	helpers:   helpers512,
}

var formatQuadsAMX = &format{
	integers: true, rows: 32, columns: 32, per: 4, tiled: true, cut: &blocksForTiles,
	multiply: stripAMX(quadsAMX),
	int8s:    tiledToo(formatQuads512.int8s, alongTiled, acrossQuadsTiled, 4),
	helpers:  helpers512,
}

type stripAMXKernel func(steps, tiles int, left *uint32, apart int, right, from *uint32,
	fromStride int, to unsafe.Pointer, stride int, short *uint32, ahead *uint32, aheadWords int)

// stripAMX turns an assembly function into a format's kernel, with the checks of [strip.checked].
func stripAMX(f stripAMXKernel) func(*format, *strip) {
	return func(of *format, s *strip) {
		to, ahead := s.checked(of, tileWords)
		var short *uint32
		if s.short != nil {
			short = &s.tile[:tileSize][0] // buffer for sums that are rounded
		}
		f(s.words/tileWords, s.tiles, unsafe.SliceData(s.left), s.apart, unsafe.SliceData(s.right),
			unsafe.SliceData(s.from), s.fromStride, to, s.stride, short, unsafe.SliceData(ahead), len(ahead))
	}
}

func halvesAMX(steps, tiles int, left *uint32, apart int, right, from *uint32, fromStride int,
	to ptr, stride int, short *uint32, ahead *uint32, aheadWords int)
func quadsAMX(steps, tiles int, left *uint32, apart int, right, from *uint32, fromStride int,
	to ptr, stride int, short *uint32, ahead *uint32, aheadWords int)

// tiledToo adds functions for tiled panels to a packer, with per elements in a word.
func tiledToo[T any](p packer[T], along along512Kernel, across across512Kernel, per int) packer[T] {
	var element T
	size := int(unsafe.Sizeof(element))
	p.tiledAlong = func(dst []uint32, height int, src []T, ld, words int) {
		if height != 32 || words < 1 || words%tileWords != 0 || len(src) < 31*ld+words*per ||
			len(dst) < 32*words {
			panic("matmul: a packer would leave its slices")
		}
		along(&dst[0], unsafe.Pointer(&src[0]), ld*size, words/tileWords)
	}
	p.tiledAcross = func(dst []uint32, panel, height, columns int, src []T, ld, words int) {
		panels, rest := columns/32, columns%32
		if height != 32 || columns < 1 || words < 1 || words%tileWords != 0 ||
			len(src) < (words*per-1)*ld+columns || len(dst) < (divideUp(columns, 32)-1)*panel+32*words {
			panic("matmul: a packer would leave its slices")
		}
		if panels > 0 {
			across(&dst[0], panel, panels, 1<<32-1, unsafe.Pointer(&src[0]), ld*size, words/tileWords)
		}
		if rest > 0 {
			across(&dst[panels*panel], panel, 1, 1<<rest-1, unsafe.Pointer(&src[panels*32]), ld*size,
				words/tileWords)
		}
	}
	return p
}

func alongTiled(dst *uint32, src ptr, ld, blocks int)
func alongRoundedHalvesTiled(dst *uint32, src ptr, ld, blocks int)
func acrossHalvesTiled(dst *uint32, panel, panels int, columns uint32, src ptr, ld, blocks int)
func acrossRoundedHalvesTiled(dst *uint32, panel, panels int, columns uint32, src ptr,
	ld, blocks int)
func acrossQuadsTiled(dst *uint32, panel, panels int, columns uint32, src ptr, ld, blocks int)
