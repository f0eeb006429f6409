package main

// transpose writes a function that transposes blocks of 8 × 8 words, one behind the other in rows. First pairs of rows are
// interleaved, then pairs of pairs, each within the halves of registers, and then halves are exchanged.
func transpose(w *writer) {
	w.function("transpose8(dst *uint32, stride int, src *uint32, ld, blocks int)", "transpose8", 40)
	w.line("MOVQ dst+0(FP), DI")
	w.line("MOVQ stride+8(FP), DX")
	w.line("MOVQ src+16(FP), SI")
	w.line("MOVQ ld+24(FP), R8")
	w.line("MOVQ blocks+32(FP), CX")
	w.line("SHLQ $2, DX")
	w.line("SHLQ $2, R8")
	w.line("LEAQ (R8)(R8*2), R9")
	w.line("LEAQ (SI)(R8*4), BX")
	w.label("loop")
	for half, base := range []string{"SI", "BX"} {
		for r, index := range []string{"", "(R8*1)", "(R8*2)", "(R9*1)"} {
			w.line("VMOVUPS (%s)%s, Y%d", base, index, 4*half+r)
		}
	}
	for i := 0; i < 8; i += 2 {
		w.line("VUNPCKLPS Y%d, Y%d, Y%d", i+1, i, 8+i)
		w.line("VUNPCKHPS Y%d, Y%d, Y%d", i+1, i, 9+i)
	}
	for i := 0; i < 8; i += 4 {
		w.line("VUNPCKLPD Y%d, Y%d, Y%d", 8+i+2, 8+i, i)
		w.line("VUNPCKHPD Y%d, Y%d, Y%d", 8+i+2, 8+i, i+1)
		w.line("VUNPCKLPD Y%d, Y%d, Y%d", 8+i+3, 8+i+1, i+2)
		w.line("VUNPCKHPD Y%d, Y%d, Y%d", 8+i+3, 8+i+1, i+3)
	}
	for _, half := range []int{0x20, 0x31} {
		for i := range 4 {
			w.line("VPERM2F128 $0x%x, Y%d, Y%d, Y8", half, i+4, i)
			w.line("VMOVUPS Y8, (DI)")
			w.line("ADDQ DX, DI")
		}
	}
	w.line("ADDQ $32, SI")
	w.line("ADDQ $32, BX")
	w.line("DECQ CX")
	w.line("JNZ loop")
	w.line("VZEROUPPER")
	w.line("RET")
}
