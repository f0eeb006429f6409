// Package matmul multiplies matrices on the CPU: operands in float32, or rounded to bfloat16, with
// sums in float32, and operands of 8-bit integers with exact sums. It works on slices of numbers
// and their layouts. Graphs, devices, and the meaning of codes and scales are left to its callers.
//
// A [Product] is planned once, by [New], from the [Layout] of both operands, and run with different
// numbers, by [Product.Run]. A layout names the axes of a tensor in any order (batch, free and
// contracted axes), so that no operand is ever transposed in memory: it is read once, in memory
// order, and packed into panels for the innermost loop.
//
// # How it works
//
// All panels consist of 32-bit words. A word holds one element rounded to bfloat16 and kept as
// float32, or two in bfloat16, or two 16-bit integers, or four 8-bit integers: as many as one
// instruction multiplies and sums in a 32-bit lane. A left panel holds, for each word along the
// contracted dimension, the words of a few rows; a right panel holds the words of a few columns. A
// kernel multiplies a left by a right panel and keeps the tile of sums in registers. AMX multiplies
// tiles, 16 rows of 16 words by 16 words of 16 columns; in its left panels, 16 words of a row are
// adjacent. So one driver serves all kernels, and a tier for a set of instructions is only a few
// functions. The driver is that of Goto and van de Geijn, "Anatomy of High-Performance Matrix
// Multiplication", ACM TOMS 34(3), 2008, section 4, arranged as in BLIS: a part of the right
// operand is packed once for all tasks; each task takes blocks of rows of the left operand, packs
// and multiplies them. Block sizes suit the kernel: with AMX, which is thirteen times as fast as
// AVX-512, a task packs as many words of its rows as fit into its buffer, and completes the sums
// for one panel after another in its caches.
//
// # Numerics
//
// Float operands are rounded to the nearest bfloat16, ties to even, while they are packed; NaN
// stays NaN. The products of two such numbers are exact in float32 and are summed in float32. The
// order of the sums depends only on the sizes and the tier: the bits are the same for any number of
// threads, however tasks are divided among them, and from run to run. The tiers avx512, avx2 and
// portable give the same bits as each other unless a product leaves the range of normal float32
// numbers. avx512bf16 and amx have instructions that add pairs of products (VDPBF16PS, TDPBF16PS)
// in orders of their own; they treat subnormal operands as zero (so infinity times a subnormal is
// NaN) and flush subnormal sums to zero, whatever the processor's settings are.
//
// Sums of integers are exact, and so equal on every tier. Unlike AMX, VPDPBUSD requires unsigned
// bytes on the left: codes are stored with an offset, and the offset times the sums of the right
// columns is subtracted in the end. Intermediate sums may wrap around, which does not matter in
// two's complement. Without either, codes are widened to 16 bits for VPMADDWD: AVX2's VPMADDUBSW,
// on bytes, is twice as fast, but adds in 16 bits and saturates. Sums must fit int32: those of
// 131071 products do. [New] refuses longer sums.
//
// # Other processors
//
// On processors other than amd64, and in builds without GOEXPERIMENT=simd, there is only the
// portable tier. ARM64 would need kernels of its own but no other driver: BFMMLA multiplies 2 × 4
// by 4 × 2 elements of bfloat16 (a word would be four elements of two rows, 128 bits), SDOT is
// VPDPBUSD for two signed operands (so without the offset), and FMLA takes float32 words as they
// are. Go's assembler has BFMMLA and SDOT only as SVE instructions; the NEON ones would be written
// as raw encodings, as VDPBF16PS is here.
package matmul
