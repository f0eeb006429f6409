//go:build amd64 && goexperiment.simd

#include "textflag.h"

// The Go compiler keeps too few of the sums in registers: in Go the same loop takes four times as long.

// func nearest4(columns, data *float32, groups, d int, least *[32]float32, at *[32]int32)
//
// Y0–Y3 and Y4–Y7 are the sums of the lower and the upper half of a group, for the four rows of x; Y11–Y14 the least so far
// in each lane, Y15 the number of the half.
TEXT ·nearest4(SB), NOSPLIT, $0-48
	MOVQ columns+0(FP), SI
	MOVQ data+8(FP), DI
	MOVQ groups+16(FP), CX
	MOVQ d+24(FP), DX
	MOVQ least+32(FP), R8
	MOVQ at+40(FP), R9
	VMOVUPS 0(R8), Y11
	VMOVUPS 32(R8), Y12
	VMOVUPS 64(R8), Y13
	VMOVUPS 96(R8), Y14
	VPXOR Y15, Y15, Y15

group:
	VMOVUPS 0(DI), Y0
	VMOVUPS 32(DI), Y4
	VMOVUPS Y0, Y1
	VMOVUPS Y0, Y2
	VMOVUPS Y0, Y3
	VMOVUPS Y4, Y5
	VMOVUPS Y4, Y6
	VMOVUPS Y4, Y7
	ADDQ $64, DI
	MOVQ SI, BX
	MOVQ DX, AX

element:
	VMOVUPS 0(DI), Y8
	VMOVUPS 32(DI), Y9
	VBROADCASTSS 0(BX), Y10
	VFMADD231PS Y8, Y10, Y0
	VFMADD231PS Y9, Y10, Y4
	VBROADCASTSS 4(BX), Y10
	VFMADD231PS Y8, Y10, Y1
	VFMADD231PS Y9, Y10, Y5
	VBROADCASTSS 8(BX), Y10
	VFMADD231PS Y8, Y10, Y2
	VFMADD231PS Y9, Y10, Y6
	VBROADCASTSS 12(BX), Y10
	VFMADD231PS Y8, Y10, Y3
	VFMADD231PS Y9, Y10, Y7
	ADDQ $64, DI
	ADDQ $16, BX
	DECQ AX
	JNZ element

// LEAST keeps the smaller of a sum and the least so far, and the number of its half.
#define LEAST(sum, best, place) \
	VCMPPS $1, best, sum, Y8; \
	VMOVDQU place(R9), Y9; \
	VBLENDVPS Y8, Y15, Y9, Y9; \
	VMOVDQU Y9, place(R9); \
	VMINPS best, sum, best

	VPCMPEQD Y10, Y10, Y10
	LEAST(Y0, Y11, 0)
	LEAST(Y1, Y12, 32)
	LEAST(Y2, Y13, 64)
	LEAST(Y3, Y14, 96)
	VPSUBD Y10, Y15, Y15
	LEAST(Y4, Y11, 0)
	LEAST(Y5, Y12, 32)
	LEAST(Y6, Y13, 64)
	LEAST(Y7, Y14, 96)
	VPSUBD Y10, Y15, Y15
	DECQ CX
	JNZ group

	VMOVUPS Y11, 0(R8)
	VMOVUPS Y12, 32(R8)
	VMOVUPS Y13, 64(R8)
	VMOVUPS Y14, 96(R8)
	VZEROUPPER
	RET
