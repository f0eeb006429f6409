package main

import "fmt"

// An across writes panels of words, in which a word consists of elements of the same column in
// several rows. It processes eight columns at a time.
type across struct {
	name string
	size int // of an element, in bytes
	per  int // rows per word, 1 or 2
	load func(w *writer, at, to string)
	// combine makes words in Y0 from the registers Y0 and Y1 filled by load.
	combine func(w *writer)
	rounds  bool
}

// Registers: SI points to the row, and DI to the position along the sums in the first panel. If the
// panel height is not a multiple of eight, words beyond its columns are overwritten later. Rows are
// prefetched four words ahead.
func (a across) write(w *writer) {
	w.function(a.name+"(dst *uint32, panel, height, panels int, src unsafe.Pointer, ld, words int)",
		a.name, 56)
	w.line("MOVQ dst+0(FP), DI")
	w.line("MOVQ panel+8(FP), R8")
	w.line("MOVQ height+16(FP), R9")
	w.line("MOVQ src+32(FP), SI")
	w.line("MOVQ ld+40(FP), R10")
	w.line("MOVQ words+48(FP), CX")
	w.line("SHLQ $2, R8")
	w.line("MOVQ R10, R13")
	w.line("SHLQ $%d, R13", log2(4*a.per))
	if a.rounds {
		roundingConstants(w)
	}
	w.label("word")
	w.line("MOVQ panels+24(FP), R12")
	w.line("MOVQ SI, BX") // the row, at the panel's first column
	w.line("MOVQ DI, DX")
	w.label("panelloop")
	w.line("MOVQ R9, AX")
	w.line("MOVQ DX, R15")
	w.line("LEAQ (BX)(R13*1), R14")
	for _, index := range []string{"", "(R10*1)"}[:a.per] {
		w.line("PREFETCHT0 (R14)%s", index)
	}
	w.line("MOVQ BX, R14")
	w.label("vector")
	for i, index := range []string{"", "(R10*1)"}[:a.per] {
		a.load(w, "(R14)"+index, fmt.Sprintf("Y%d", i))
	}
	a.combine(w)
	w.line("VMOVDQU Y0, (R15)")
	w.line("ADDQ $%d, R14", 8*a.size)
	w.line("ADDQ $32, R15")
	w.line("SUBQ $8, AX")
	w.line("JGT vector")
	w.line("LEAQ (BX)(R9*%d), BX", a.size)
	w.line("ADDQ R8, DX")
	w.line("DECQ R12")
	w.line("JNZ panelloop")
	w.line("LEAQ (SI)(R10*%d), SI", a.per)
	w.line("LEAQ (DI)(R9*4), DI")
	w.line("DECQ CX")
	w.line("JNZ word")
	w.line("VZEROUPPER")
	w.line("RET")
}

func acrossAll(w *writer) {
	loads := func(instruction string) func(w *writer, at, to string) {
		return func(w *writer, at, to string) { w.line("%s %s, %s", instruction, at, to) }
	}
	float32s, bfloat16s, signed := loads("VMOVDQU"), loads("VPMOVZXWD"), loads("VPMOVSXBD")
	for _, a := range []across{
		{name: "acrossRounded", size: 4, per: 1, rounds: true, load: float32s,
			combine: func(w *writer) { round(w, "Y0", "Y4", "Y5") }},
		{name: "acrossSingles", size: 4, per: 1, load: float32s, combine: func(*writer) {}},
		{name: "acrossWidened", size: 2, per: 1, load: bfloat16s,
			combine: func(w *writer) { w.line("VPSLLD $16, Y0, Y0") }},
		{name: "acrossPairs", size: 1, per: 2, load: signed, combine: func(w *writer) {
			w.line("VPSLLD $16, Y1, Y1")
			w.line("VPBLENDW $0xaa, Y1, Y0, Y0")
		}},
	} {
		a.write(w)
	}
}
