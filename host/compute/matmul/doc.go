// Package matmul multiplies matrices on the processor: operands rounded to bfloat16 with sums in
// float32, and operands of 8-bit integers with exact sums. It knows slices of numbers and their
// layouts. Graphs, devices, and the meaning of codes and scales are known to its callers.
//
// A [Product] is planned once, by [New], from the [Layout] of both operands, and run with different
// numbers, by [Product.Run]. A layout names the axes of a tensor in any order (those of a batch,
// those that stay, those that are summed over), so that no operand is ever transposed in memory: it
// is read once, in the order in which it lies there, and packed into panels for the innermost loop.
//
// # How it works
//
// All panels consist of words of 32 bits. A word holds one element rounded to bfloat16 and kept as
// float32, or two of bfloat16, or two integers of 16 bits, or four of 8: as many as one instruction
// multiplies and adds up in a lane of 32 bits. A panel of the left operand holds, for each word
// along the sums, the words of a few rows, and one of the right operand those of a few columns. A
// kernel multiplies one by the other and keeps the tile of sums in registers. AMX multiplies tiles,
// 16 rows of 16 words by 16 words of 16 columns, for which 16 words of a row lie together in left
// panels. So one driver serves all kernels, and a tier of instructions is a few functions. The
// driver is that of Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM
// TOMS 34(3), 2008, section 4, in the arrangement of BLIS: a part of the right operand is packed
// once for all, then tasks take blocks of rows of the left operand, pack them for themselves, and
// multiply. Pieces have the sizes that suit the kernel: with AMX, which is thirteen times as fast
// as AVX-512, a task packs as many words of its rows as there is room for, and completes the sums
// of one panel after the other in its caches.
//
// # What results are
//
// Float operands are rounded to the nearest bfloat16, ties to even, while they are packed; NaN
// stays NaN. The products of two such numbers are exact in float32 and are added up in float32. The
// order of the sums depends on the sizes and the tier and on nothing else: the bits are the same
// for any number of threads, however tasks are divided among them, and from run to run. The tiers
// avx512, avx2 and portable give the same bits as each other unless a product leaves the range of
// normal float32 numbers. avx512bf16 and amx have instructions that add pairs of products
// (VDPBF16PS, TDPBF16PS), each in an order of its own; they take subnormal operands for zero (so
// infinity times one of them is NaN) and make zero of subnormal sums, whatever the processor's
// settings are.
//
// Sums of integers are exact on every tier, and equal. VPDPBUSD and AVX2's VPMADDUBSW, other than
// AMX, want unsigned bytes on the left: codes are stored with an offset, and the offset times the
// sums of the right columns is taken off in the end. Sums may wrap around in between, which in
// two's complement does not matter. VPMADDUBSW adds in 16 bits and saturates. AVX2 therefore looks
// at all codes first: where they are as small as those of 4 bits are, it uses VPMADDUBSW for as
// many words as cannot reach 32768 and then widens the sums, and otherwise VPMADDWD, on 16 bits,
// which is half as fast. Sums must fit int32: those of 133144 products of codes in −127 … 127 do,
// and of 131071 if −128 occurs, too. [New] refuses more.
//
// # Other processors
//
// On processors other than amd64, and in builds without GOEXPERIMENT=simd, there is only the
// portable tier. ARM64 would need its own kernels and no other driver: BFMMLA multiplies 2 × 4 by 4
// × 2 elements of bfloat16 (a word along the sums would be four elements of two rows, 128 bits),
// SDOT is VPDPBUSD for two signed operands (so without the offset), and FMLA takes words of float32
// as they are. Go's assembler knows BFMMLA and SDOT as instructions of SVE alone; those of NEON
// would be written as numbers, as VDPBF16PS is here.
package matmul
