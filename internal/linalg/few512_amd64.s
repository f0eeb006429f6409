//go:build amd64 && goexperiment.simd

#include "textflag.h"

// Products of one, two or four rows of x with four rows of w. Each product of two rows is one sum over lanes, whatever
// the number of rows, so that a row's results do not depend on the rows beside it.
//
// SI is the first row of x, R9 … R11 are the others; BX, R12, R13 and AX are the rows of w. Z0 … Z3 hold a vector of
// each row of w, Z4 … Z7 one of each row of x. Z8 … Z11 are the sums of the first row of x, and so on.

// DX is the twelfth row of w behind BX: where rows follow each other, the four from there on are asked for in the order in
// which they lie in memory. No memory need be there.

// LOADSINGLE and LOADHALF read the vectors of w at offset R8, MASKEDSINGLE and MASKEDHALF the last ones, which are not
// whole, with zeros behind them.
#define LOADSINGLE \
	PREFETCHT1 (DX)(R8*4)    \
	PREFETCHT1 64(DX)(R8*4)  \
	PREFETCHT1 128(DX)(R8*4) \
	PREFETCHT1 192(DX)(R8*4) \
	VMOVUPS (BX)(R8*1), Z0  \
	VMOVUPS (R12)(R8*1), Z1 \
	VMOVUPS (R13)(R8*1), Z2 \
	VMOVUPS (AX)(R8*1), Z3

#define MASKEDSINGLE \
	VMOVUPS.Z (BX)(R8*1), K1, Z0  \
	VMOVUPS.Z (R12)(R8*1), K1, Z1 \
	VMOVUPS.Z (R13)(R8*1), K1, Z2 \
	VMOVUPS.Z (AX)(R8*1), K1, Z3

// A bfloat16 number is the upper half of a float32 number.
#define WIDEN \
	VPSLLD $16, Z0, Z0 \
	VPSLLD $16, Z1, Z1 \
	VPSLLD $16, Z2, Z2 \
	VPSLLD $16, Z3, Z3

#define LOADHALF \
	PREFETCHT1 (DX)(R8*4)     \
	PREFETCHT1 64(DX)(R8*4)   \
	VPMOVZXWD (BX)(R8*1), Z0  \
	VPMOVZXWD (R12)(R8*1), Z1 \
	VPMOVZXWD (R13)(R8*1), Z2 \
	VPMOVZXWD (AX)(R8*1), Z3  \
	WIDEN

#define MASKEDHALF \
	VPMOVZXWD.Z (BX)(R8*1), K1, Z0  \
	VPMOVZXWD.Z (R12)(R8*1), K1, Z1 \
	VPMOVZXWD.Z (R13)(R8*1), K1, Z2 \
	VPMOVZXWD.Z (AX)(R8*1), K1, Z3  \
	WIDEN

#define CLEAR(s0, s1, s2, s3) \
	VPXORQ s0, s0, s0 \
	VPXORQ s1, s1, s1 \
	VPXORQ s2, s2, s2 \
	VPXORQ s3, s3, s3

#define ADD(x, s0, s1, s2, s3) \
	VFMADD231PS Z0, x, s0 \
	VFMADD231PS Z1, x, s1 \
	VFMADD231PS Z2, x, s2 \
	VFMADD231PS Z3, x, s3

// FOLD stores the sums of the lanes of four registers, s and their halves h, at DI, and goes to the next row of y.
#define FOLD(s0, h0, s1, h1, s2, h2, s3, h3) \
	VEXTRACTF32X8 $1, s0, Y0 \
	VEXTRACTF32X8 $1, s1, Y1 \
	VEXTRACTF32X8 $1, s2, Y2 \
	VEXTRACTF32X8 $1, s3, Y3 \
	VADDPS h0, Y0, Y0        \
	VADDPS h1, Y1, Y1        \
	VADDPS h2, Y2, Y2        \
	VADDPS h3, Y3, Y3        \
	VHADDPS Y1, Y0, Y0       \
	VHADDPS Y3, Y2, Y2       \
	VHADDPS Y2, Y0, Y0       \
	VEXTRACTF128 $1, Y0, X1  \
	VADDPS X1, X0, X0        \
	VMOVUPS X0, (DI)         \
	ADDQ R8, DI

#define FOLD1 FOLD(Z8, Y8, Z9, Y9, Z10, Y10, Z11, Y11)
#define FOLD2 FOLD(Z12, Y12, Z13, Y13, Z14, Y14, Z15, Y15)
#define FOLD3 FOLD(Z16, Y16, Z17, Y17, Z18, Y18, Z19, Y19)
#define FOLD4 FOLD(Z20, Y20, Z21, Y21, Z22, Y22, Z23, Y23)

#define CLEAR1 CLEAR(Z8, Z9, Z10, Z11)
#define CLEAR2 CLEAR1 \
	CLEAR(Z12, Z13, Z14, Z15)
#define CLEAR4 CLEAR2 \
	CLEAR(Z16, Z17, Z18, Z19) \
	CLEAR(Z20, Z21, Z22, Z23)

#define ADD1 ADD(Z4, Z8, Z9, Z10, Z11)
#define ADD2 ADD1 \
	ADD(Z5, Z12, Z13, Z14, Z15)
#define ADD4 ADD2 \
	ADD(Z6, Z16, Z17, Z18, Z19) \
	ADD(Z7, Z20, Z21, Z22, Z23)

// ROWS1, ROWS2 and ROWS4 read vectors of x: an element has scale times the bytes of one of w.
#define ROWS1(scale) VMOVUPS (SI)(R8*scale), Z4
#define ROWS2(scale) ROWS1(scale) \
	VMOVUPS (R9)(R8*scale), Z5
#define ROWS4(scale) ROWS2(scale) \
	VMOVUPS (R10)(R8*scale), Z6 \
	VMOVUPS (R11)(R8*scale), Z7

#define MASKEDROWS1(scale) VMOVUPS.Z (SI)(R8*scale), K1, Z4
#define MASKEDROWS2(scale) MASKEDROWS1(scale) \
	VMOVUPS.Z (R9)(R8*scale), K1, Z5
#define MASKEDROWS4(scale) MASKEDROWS2(scale) \
	VMOVUPS.Z (R10)(R8*scale), K1, Z6 \
	VMOVUPS.Z (R11)(R8*scale), K1, Z7

// BEGIN reads the arguments; steps between rows are in bytes.
#define BEGIN \
	MOVQ n+0(FP), CX         \
	MOVQ x+8(FP), SI         \
	MOVQ xStep+16(FP), R8    \
	LEAQ (SI)(R8*1), R9      \
	LEAQ (R9)(R8*1), R10     \
	LEAQ (R10)(R8*1), R11    \
	MOVQ w+24(FP), BX        \
	MOVQ wStep+32(FP), R8    \
	LEAQ (BX)(R8*1), R12     \
	LEAQ (R12)(R8*1), R13    \
	LEAQ (R13)(R8*1), AX     \
	LEAQ (AX)(R8*8), DX      \
	ADDQ R8, DX              \
	MOVQ y+40(FP), DI        \
	XORQ R8, R8              \
	SUBQ $16, CX

// REST makes the mask of the elements that are left, of which CX has the number minus 16.
#define REST \
	ADDQ $16, CX  \
	MOVL $1, DX   \
	SHLL CX, DX   \
	DECL DX       \
	KMOVW DX, K1

#define PRODUCTS(clear, load, masked, step, xs, xsMasked, add) \
	BEGIN            \
	clear            \
	JLT rest         \
	loop:            \
	load             \
	xs               \
	add              \
	ADDQ $step, R8   \
	SUBQ $16, CX     \
	JGE loop         \
	rest:            \
	CMPQ CX, $-16    \
	JEQ fold         \
	REST             \
	masked           \
	xsMasked         \
	add              \
	fold:            \
	MOVQ yStep+48(FP), R8

// func products1(n int, x *float32, xStep int, w *float32, wStep int, y *float32, yStep int)
TEXT ·products1(SB), NOSPLIT, $0-56
	PRODUCTS(CLEAR1, LOADSINGLE, MASKEDSINGLE, 64, ROWS1(1), MASKEDROWS1(1), ADD1)
	FOLD1
	VZEROUPPER
	RET

// func products2(n int, x *float32, xStep int, w *float32, wStep int, y *float32, yStep int)
TEXT ·products2(SB), NOSPLIT, $0-56
	PRODUCTS(CLEAR2, LOADSINGLE, MASKEDSINGLE, 64, ROWS2(1), MASKEDROWS2(1), ADD2)
	FOLD1
	FOLD2
	VZEROUPPER
	RET

// func products4(n int, x *float32, xStep int, w *float32, wStep int, y *float32, yStep int)
TEXT ·products4(SB), NOSPLIT, $0-56
	PRODUCTS(CLEAR4, LOADSINGLE, MASKEDSINGLE, 64, ROWS4(1), MASKEDROWS4(1), ADD4)
	FOLD1
	FOLD2
	FOLD3
	FOLD4
	VZEROUPPER
	RET

// func halfProducts1(n int, x *float32, xStep int, w *uint16, wStep int, y *float32, yStep int)
TEXT ·halfProducts1(SB), NOSPLIT, $0-56
	PRODUCTS(CLEAR1, LOADHALF, MASKEDHALF, 32, ROWS1(2), MASKEDROWS1(2), ADD1)
	FOLD1
	VZEROUPPER
	RET

// func halfProducts2(n int, x *float32, xStep int, w *uint16, wStep int, y *float32, yStep int)
TEXT ·halfProducts2(SB), NOSPLIT, $0-56
	PRODUCTS(CLEAR2, LOADHALF, MASKEDHALF, 32, ROWS2(2), MASKEDROWS2(2), ADD2)
	FOLD1
	FOLD2
	VZEROUPPER
	RET

// func halfProducts4(n int, x *float32, xStep int, w *uint16, wStep int, y *float32, yStep int)
TEXT ·halfProducts4(SB), NOSPLIT, $0-56
	PRODUCTS(CLEAR4, LOADHALF, MASKEDHALF, 32, ROWS4(2), MASKEDROWS4(2), ADD4)
	FOLD1
	FOLD2
	FOLD3
	FOLD4
	VZEROUPPER
	RET
