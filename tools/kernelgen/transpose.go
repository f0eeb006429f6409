package main

import "fmt"

// A transposition makes words from rows of elements and transposes consecutive blocks of 8 × 8
// words. The row stride is ld bytes.
type transposition struct {
	name    string
	bytes   int // of eight words, in memory
	rounded bool
	// load makes eight words in a register. It may use Y8 … Y11.
	load func(w *writer, at, to string)
}

func transpositions(w *writer) {
	for _, t := range []transposition{
		{name: "transpose8", bytes: 32,
			load: func(w *writer, at, to string) { w.line("VMOVUPS %s, %s", at, to) }},
		{name: "transposeRounded8", bytes: 32, rounded: true, load: func(w *writer, at, to string) {
			w.line("VMOVUPS %s, %s", at, to)
			round(w, to, "Y8", "Y9")
		}},
		{name: "transposeWidened8", bytes: 16, load: func(w *writer, at, to string) {
			w.line("VPMOVZXWD %s, %s", at, to)
			w.line("VPSLLD $16, %s, %[1]s", to)
		}},
		{name: "transposePairs8", bytes: 16,
			load: func(w *writer, at, to string) { w.line("VPMOVSXBW %s, %s", at, to) }},
	} {
		t.write(w)
	}
}

// write writes the function. It interleaves pairs of rows, then pairs of pairs, each within the
// halves of registers, and finally exchanges halves.
func (t transposition) write(w *writer) {
	w.function(t.name+"(dst *uint32, stride int, src unsafe.Pointer, ld, blocks int)", t.name, 40)
	w.line("MOVQ dst+0(FP), DI")
	w.line("MOVQ stride+8(FP), DX")
	w.line("MOVQ src+16(FP), SI")
	w.line("MOVQ ld+24(FP), R8")
	w.line("MOVQ blocks+32(FP), CX")
	w.line("SHLQ $2, DX")
	w.line("LEAQ (R8)(R8*2), R9")
	w.line("LEAQ (SI)(R8*4), BX")
	if t.rounded {
		roundingConstants(w)
	}
	w.label("loop")
	for half, base := range []string{"SI", "BX"} {
		for r, index := range []string{"", "(R8*1)", "(R8*2)", "(R9*1)"} {
			t.load(w, fmt.Sprintf("(%s)%s", base, index), fmt.Sprintf("Y%d", 4*half+r))
		}
	}
	// Transpose four words of rows 0–3 and 4–7 at a time.
	for i := 0; i < 8; i += 4 {
		w.line("VUNPCKLPS Y%d, Y%d, Y8", i+1, i)
		w.line("VUNPCKHPS Y%d, Y%d, Y9", i+1, i)
		w.line("VUNPCKLPS Y%d, Y%d, Y10", i+3, i+2)
		w.line("VUNPCKHPS Y%d, Y%d, Y11", i+3, i+2)
		w.line("VUNPCKLPD Y10, Y8, Y%d", i)
		w.line("VUNPCKHPD Y10, Y8, Y%d", i+1)
		w.line("VUNPCKLPD Y11, Y9, Y%d", i+2)
		w.line("VUNPCKHPD Y11, Y9, Y%d", i+3)
	}
	for _, half := range []int{0x20, 0x31} {
		for i := range 4 {
			w.line("VPERM2F128 $0x%x, Y%d, Y%d, Y8", half, i+4, i)
			w.line("VMOVUPS Y8, (DI)")
			w.line("ADDQ DX, DI")
		}
	}
	w.line("ADDQ $%d, SI", t.bytes)
	w.line("ADDQ $%d, BX", t.bytes)
	w.line("DECQ CX")
	w.line("JNZ loop")
	w.line("VZEROUPPER")
	w.line("RET")
}

// roundingConstants loads the constants for round into Y12 … Y15.
func roundingConstants(w *writer) {
	for i, x := range []uint32{0x7fff, 1, 0x400000, 0xffff0000} {
		w.line("MOVL $0x%x, AX", x)
		w.line("VMOVD AX, X%d", 12+i)
		w.line("VPBROADCASTD X%d, Y%[1]d", 12+i)
	}
}

// round rounds the words of a register to bfloat16, to nearest, ties to even, like
// halffloat.ToBFloat16. It adds half a unit less one, and one more if the truncated result is odd.
// NaNs become quiet.
func round(w *writer, x, s, t string) {
	w.line("VPSRLD $16, %s, %s", x, s)
	w.line("VPAND Y13, %s, %[1]s", s)
	w.line("VPADDD Y12, %s, %s", x, t)
	w.line("VPADDD %s, %s, %[1]s", s, t)
	w.line("VPOR Y14, %s, %s", x, t)
	w.line("VCMPPS $3, %s, %[1]s, %[1]s", x) // unordered
	w.line("VPBLENDVB %s, %s, %s, %[1]s", x, t, s)
	w.line("VPAND Y15, %s, %[1]s", x)
}

// prefetch writes a function that prefetches rows. The row stride is in bytes.
func prefetch(w *writer) {
	w.function("prefetchRows(at unsafe.Pointer, stride, rows, bytes int)", "prefetchRows", 32)
	w.line("MOVQ at+0(FP), SI")
	w.line("MOVQ stride+8(FP), DX")
	w.line("MOVQ rows+16(FP), CX")
	w.line("MOVQ bytes+24(FP), R8")
	w.label("row")
	w.line("MOVQ SI, DI")
	w.line("MOVQ R8, AX")
	w.label("cacheline")
	w.line("PREFETCHT0 (DI)")
	w.line("ADDQ $64, DI")
	w.line("SUBQ $64, AX")
	w.line("JGT cacheline")
	w.line("ADDQ DX, SI")
	w.line("DECQ CX")
	w.line("JNZ row")
	w.line("RET")
}

// finish writes a function that converts integer sums to float32. It subtracts the column's
// correction and multiplies by the scales of the row and the column.
func finish(w *writer) {
	w.function("finishCodes(rows, vectors int, sums *uint32, sumStride int, out *float32, outStride "+
		"int, corrections *int32, rowScales, columnScales *float32)", "finishCodes", 72)
	w.line("MOVQ vectors+8(FP), CX")
	w.line("MOVQ sums+16(FP), SI")
	w.line("MOVQ sumStride+24(FP), R8")
	w.line("MOVQ out+32(FP), DI")
	w.line("MOVQ outStride+40(FP), R9")
	w.line("MOVQ corrections+48(FP), R10")
	w.line("MOVQ columnScales+64(FP), R12")
	w.line("SHLQ $2, R8")
	w.line("SHLQ $2, R9")
	w.label("column")
	w.line("VMOVDQU (R10), Y1")
	w.line("VMOVUPS (R12), Y2")
	w.line("MOVQ rows+0(FP), AX")
	w.line("MOVQ rowScales+56(FP), R13")
	w.line("MOVQ SI, BX")
	w.line("MOVQ DI, DX")
	w.label("row")
	w.line("VMOVDQU (BX), Y0")
	w.line("VPSUBD Y1, Y0, Y0")
	w.line("VCVTDQ2PS Y0, Y0")
	w.line("VBROADCASTSS (R13), Y3")
	w.line("VMULPS Y3, Y0, Y0")
	w.line("VMULPS Y2, Y0, Y0")
	w.line("VMOVUPS Y0, (DX)")
	w.line("ADDQ R8, BX")
	w.line("ADDQ R9, DX")
	w.line("ADDQ $4, R13")
	w.line("DECQ AX")
	w.line("JNZ row")
	w.line("ADDQ $32, SI")
	w.line("ADDQ $32, DI")
	w.line("ADDQ $32, R10")
	w.line("ADDQ $32, R12")
	w.line("DECQ CX")
	w.line("JNZ column")
	w.line("VZEROUPPER")
	w.line("RET")
}
