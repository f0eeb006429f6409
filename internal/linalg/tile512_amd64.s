//go:build amd64 && goexperiment.simd

#include "textflag.h"

// A tile of eight rows of two vectors: sixteen independent sums hide the latency of
// the multipliers, which then get two vectors in each cycle. The compiler does not keep
// so many in registers, hence the assembler.
//
// Z8 … Z23 are the sums, row by row; Z0 and Z1 hold a row of the strip of B, Z2 … Z5
// an element of the strip of A each.

#define CLEAR(s, t) \
	VPXORQ s, s, s \
	VPXORQ t, t, t

#define SINGLE(at, x, s, t) \
	VBROADCASTSS at(SI), x \
	VFMADD231PS x, Z0, s   \
	VFMADD231PS x, Z1, t

#define DOUBLE(at, x, s, t) \
	VBROADCASTSD at(SI), x \
	VFMADD231PD x, Z0, s   \
	VFMADD231PD x, Z1, t

#define ADDSINGLE(s, t) \
	VADDPS 0(DI), s, s   \
	VADDPS 64(DI), t, t  \
	VMOVUPS s, 0(DI)     \
	VMOVUPS t, 64(DI)    \
	ADDQ DX, DI

#define ADDDOUBLE(s, t) \
	VADDPD 0(DI), s, s   \
	VADDPD 64(DI), t, t  \
	VMOVUPD s, 0(DI)     \
	VMOVUPD t, 64(DI)    \
	ADDQ DX, DI

#define EACHROW(f) \
	f(Z8, Z9)   \
	f(Z10, Z11) \
	f(Z12, Z13) \
	f(Z14, Z15) \
	f(Z16, Z17) \
	f(Z18, Z19) \
	f(Z20, Z21) \
	f(Z22, Z23)

// func tile8x32(k int, a, b, c *float32, stride int)
TEXT ·tile8x32(SB), NOSPLIT, $0-40
	MOVQ k+0(FP), CX
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), BX
	MOVQ c+24(FP), DI
	MOVQ stride+32(FP), DX
	SHLQ $2, DX
	EACHROW(CLEAR)
	TESTQ CX, CX
	JLE done

loop:
	VMOVUPS 0(BX), Z0
	VMOVUPS 64(BX), Z1
	SINGLE(0, Z2, Z8, Z9)
	SINGLE(4, Z3, Z10, Z11)
	SINGLE(8, Z4, Z12, Z13)
	SINGLE(12, Z5, Z14, Z15)
	SINGLE(16, Z2, Z16, Z17)
	SINGLE(20, Z3, Z18, Z19)
	SINGLE(24, Z4, Z20, Z21)
	SINGLE(28, Z5, Z22, Z23)
	ADDQ $32, SI
	ADDQ $128, BX
	DECQ CX
	JNZ loop

done:
	EACHROW(ADDSINGLE)
	VZEROUPPER
	RET

// func tile8x16(k int, a, b, c *float64, stride int)
TEXT ·tile8x16(SB), NOSPLIT, $0-40
	MOVQ k+0(FP), CX
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), BX
	MOVQ c+24(FP), DI
	MOVQ stride+32(FP), DX
	SHLQ $3, DX
	EACHROW(CLEAR)
	TESTQ CX, CX
	JLE done

loop:
	VMOVUPD 0(BX), Z0
	VMOVUPD 64(BX), Z1
	DOUBLE(0, Z2, Z8, Z9)
	DOUBLE(8, Z3, Z10, Z11)
	DOUBLE(16, Z4, Z12, Z13)
	DOUBLE(24, Z5, Z14, Z15)
	DOUBLE(32, Z2, Z16, Z17)
	DOUBLE(40, Z3, Z18, Z19)
	DOUBLE(48, Z4, Z20, Z21)
	DOUBLE(56, Z5, Z22, Z23)
	ADDQ $64, SI
	ADDQ $128, BX
	DECQ CX
	JNZ loop

done:
	EACHROW(ADDDOUBLE)
	VZEROUPPER
	RET
