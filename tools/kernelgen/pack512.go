package main

import "fmt"

// AVX-512 packers for panels of 12 or 32 rows. They do not read beyond these rows.

// A shape512 describes the layout of a panel.
type shape512 struct {
	rows  int // rows that a packer processes at a time: 12, or 16 for one half of 32
	width int // words of a panel for each word along the sums
}

var shapes512 = []shape512{{12, 12}, {16, 32}}

// Constants of round512.
const (
	half512, odd512, one512, quiet512, upper512 = "Z27", "Z28", "Z29", "Z30", "Z31"
)

func roundingConstants512(w *writer) {
	for _, c := range []struct {
		bits uint32
		to   string
	}{{0x7fff, half512}, {0x10000, odd512}, {1, one512}, {0x22, quiet512}, {0xffff0000, upper512}} {
		w.line("MOVL $0x%x, AX", c.bits)
		w.line("VPBROADCASTD AX, %s", c.to)
	}
}

// round512 rounds the words of a register to bfloat16, as round does. If x is a NaN, VFIXUPIMMPS
// replaces the result by the quiet x; its table has one digit for quiet and one for signaling NaNs.
// It uses mask register K6.
func round512(w *writer, x, t string) {
	roundUpper512(w, x, t)
	w.line("VPANDD %s, %s, %s", upper512, t, x)
}

// roundUpper512 rounds like round512, but only to the upper halves of the words of t. The lower
// halves are undefined.
func roundUpper512(w *writer, x, t string) {
	w.line("VPTESTMD %s, %s, K6", odd512, x)
	w.line("VPADDD %s, %s, %s", half512, x, t)
	w.line("VPADDD %s, %s, K6, %[2]s", one512, t)
	w.line("VFIXUPIMMPS $0, %s, %s, %s", quiet512, x, t)
}

// A transposition512 transposes blocks of 12 or 16 rows and four words. The row stride is ld bytes.
type transposition512 struct {
	name string
	size int // bytes loaded from a row
	// load makes four words of each of the given rows in a register, one row per 128-bit lane.
	load func(w *writer, rows []string, to int)
	// prepare fills registers from Z16. finish transforms and stores a vector that contains one
	// word of every row.
	prepare func(w *writer)
	finish  func(w *writer, x string, store func(x string))
}

func transpositions512(w *writer) {
	asItIs := func(_ *writer, x string, store func(string)) { store(x) }
	for _, shape := range shapes512 {
		for _, t := range []transposition512{
			{name: "alongWords", size: 16, load: loadWords, prepare: func(*writer) {}, finish: asItIs},
			{name: "alongRounded", size: 16, load: loadWords, prepare: roundingConstants512,
				finish: func(w *writer, x string, store func(string)) {
					round512(w, x, "Z16")
					store(x)
				}},
			{name: "alongWidened", size: 16, load: loadWords, prepare: roundingConstants512,
				finish: func(w *writer, x string, store func(string)) {
					w.line("VPSLLD $16, %s, Z16", x)
					store("Z16")
					w.line("VPANDD %s, %s, %[2]s", upper512, x)
					store(x)
				}},
			{name: "alongRoundedHalves", size: 32, load: loadHalves, prepare: halvesConstants512,
				finish: asItIs},
		} {
			t.write(w, shape)
		}
	}
}

// write writes the function. A register holds four words of each of four rows, one row per 128-bit
// lane, so a transposition within lanes makes vectors with one word of every row.
func (t transposition512) write(w *writer, shape shape512) {
	name := fmt.Sprintf("%s%d", t.name, shape.width)
	w.function(name+"(dst *uint32, src unsafe.Pointer, ld, blocks int)", name, 32)
	w.line("MOVQ dst+0(FP), DI")
	w.line("MOVQ src+8(FP), SI")
	w.line("MOVQ ld+16(FP), R8")
	w.line("MOVQ blocks+24(FP), CX")
	w.line("LEAQ (R8)(R8*2), R9")
	lanes := []string{"SI", "BX", "R10", "R11"}[:shape.rows/4]
	for i := 1; i < len(lanes); i++ {
		w.line("LEAQ (%s)(R8*4), %s", lanes[i-1], lanes[i])
		w.line("MOVL $0x%x, AX", 0xf<<(4*i))
		w.line("KMOVW AX, K%d", i)
	}
	t.prepare(w)
	w.label("loop")
	for r, index := range []string{"", "(R8*1)", "(R8*2)", "(R9*1)"} {
		rows := make([]string, len(lanes))
		for i, base := range lanes {
			rows[i] = fmt.Sprintf("(%s)%s", base, index)
		}
		t.load(w, rows, r)
	}
	w.line("VUNPCKLPS Z1, Z0, Z4")
	w.line("VUNPCKHPS Z1, Z0, Z5")
	w.line("VUNPCKLPS Z3, Z2, Z6")
	w.line("VUNPCKHPS Z3, Z2, Z7")
	w.line("VUNPCKLPD Z6, Z4, Z0")
	w.line("VUNPCKHPD Z6, Z4, Z1")
	w.line("VUNPCKLPD Z7, Z5, Z2")
	w.line("VUNPCKHPD Z7, Z5, Z3")
	at := 0
	for i := range 4 {
		t.finish(w, fmt.Sprintf("Z%d", i), func(x string) {
			w.line("VMOVUPS %s, %d(DI)", x, at)
			at += 4 * shape.width
		})
	}
	for _, base := range lanes {
		w.line("ADDQ $%d, %s", t.size, base)
	}
	w.line("ADDQ $%d, DI", at)
	w.line("DECQ CX")
	w.line("JNZ loop")
	w.line("VZEROUPPER")
	w.line("RET")
}

// loadWords loads words unchanged. The masks K1 … K3 select the lanes after the first.
func loadWords(w *writer, rows []string, to int) {
	for i, row := range rows {
		if i == 0 {
			w.line("VMOVUPS %s, X%d", row, to)
		} else {
			w.line("VBROADCASTF32X4 %s, K%d, Z%d", row, i, to)
		}
	}
}

// loadHalves loads eight float32 of each row and makes words of two bfloat16. It does not use
// VCVTNE2PS2BF16, which treats subnormal numbers as zero, even if they round to a normal one.
func loadHalves(w *writer, rows []string, to int) {
	for i, row := range rows {
		if i%2 == 0 {
			w.line("VMOVUPS %s, Y%d", row, 16+i/2)
		} else {
			w.line("VINSERTF64X4 $1, %s, Z%d, Z%[2]d", row, 16+i/2)
		}
	}
	words := fmt.Sprintf("Z%d", to)
	roundUpper512(w, "Z16", words)
	roundUpper512(w, "Z17", "Z18")
	w.line("VPERMT2W Z18, %s, %s", upperHalves512, words)
}

// upperHalves512 is the register with the indices of the upper halves of the words in two
// registers.
const upperHalves512 = "Z26"

func halvesConstants512(w *writer) {
	roundingConstants512(w)
	w.line("VMOVDQU16 upperHalves<>+0(SB), %s", upperHalves512)
}

// upperHalves writes the data for halvesConstants512.
func upperHalves(w *writer) {
	w.WriteString("\n")
	for i := range 16 {
		fmt.Fprintf(w, "DATA upperHalves<>+%d(SB)/4, $0x%04x%04x\n", 4*i, 4*i+3, 4*i+1)
	}
	w.WriteString("GLOBL upperHalves<>(SB), RODATA|NOPTR, $64\n")
}

// An across512 is like an [across], for panels of 12 or 32 columns.
type across512 struct {
	name    string
	size    int // of an element, in bytes
	per     int // rows per word
	load    string
	prepare func(w *writer)
	combine func(w *writer, in []string, to string) // makes words of registers; it uses Z16 and Z17
}

// write uses the same registers as an [across]. The masks K1 and K2 select the existing columns of
// a vector; the others become zero. For panels of 12, K3 selects the columns of a panel.
func (a across512) write(w *writer, shape shape512) {
	name := fmt.Sprintf("%s%d", a.name, shape.width)
	w.function(name+"(dst *uint32, panel, panels int, columns uint32, src unsafe.Pointer, ld, words "+
		"int)", name, 56)
	w.line("MOVQ dst+0(FP), DI")
	w.line("MOVQ panel+8(FP), R8")
	w.line("MOVL columns+24(FP), AX")
	w.line("KMOVW AX, K1")
	w.line("SHRL $16, AX")
	w.line("KMOVW AX, K2")
	w.line("MOVQ src+32(FP), SI")
	w.line("MOVQ ld+40(FP), R10")
	w.line("MOVQ words+48(FP), CX")
	w.line("SHLQ $2, R8")
	w.line("LEAQ (R10)(R10*2), R11")
	w.line("MOVQ R10, R13")
	// Prefetch only 16 rows ahead: rows 1024 bytes apart share an L1 cache set, which 32 would
	// fill.
	w.line("SHLQ $4, R13")
	a.prepare(w)
	if shape.width == 12 {
		a.fours(w)
	}
	w.label("word")
	w.line("MOVQ panels+16(FP), R12")
	w.line("MOVQ SI, BX") // the row, at the panel's first column
	w.line("MOVQ DI, DX")
	w.label("panelloop")
	rows := []string{"", "(R10*1)", "(R10*2)", "(R11*1)"}[:a.per]
	w.line("LEAQ (BX)(R13*1), R14")
	for _, row := range rows {
		for at := 0; at < a.size*shape.width; at += 64 {
			w.line("PREFETCHT0 %d(R14)%s", at, row)
		}
	}
	for v := 0; v < shape.width; v += 16 {
		for i, row := range rows {
			w.line("%s.Z %d(BX)%s, K%d, Z%d", a.load, v*a.size, row, 1+v/16, i)
		}
		a.combine(w, []string{"Z0", "Z1", "Z2", "Z3"}, "Z0")
		if shape.width < 16 {
			w.line("VMOVDQU32 Z0, K3, (DX)") // fours has set K3
		} else {
			w.line("VMOVDQU32 Z0, %d(DX)", 4*v)
		}
	}
	w.line("ADDQ $%d, BX", a.size*shape.width)
	w.line("ADDQ R8, DX")
	w.line("DECQ R12")
	w.line("JNZ panelloop")
	w.line("LEAQ (SI)(R10*%d), SI", a.per)
	w.line("ADDQ $%d, DI", 4*shape.width)
	w.line("DECQ CX")
	w.line("JNZ word")
	if shape.width == 12 {
		w.label("done")
	}
	w.line("VZEROUPPER")
	w.line("RET")
}

// fours writes the loop for four words at a time, which are three vectors of a panel of 12. Each
// vector is loaded in two pieces, with masks derived from the column mask.
func (a across512) fours(w *writer) {
	pieces := []struct{ mask, shift, word, lane int }{{1, 0, 0, 0}, {2, 12, 1, 12}, {3, -4, 1, -4},
		{4, 8, 2, 8}, {5, -8, 2, -8}, {7, 4, 3, 4}}
	for _, p := range pieces[1:] {
		w.line("MOVL columns+24(FP), AX")
		if p.shift > 0 {
			w.line("SHLL $%d, AX", p.shift)
		} else {
			w.line("SHRL $%d, AX", -p.shift)
		}
		w.line("KMOVW AX, K%d", p.mask)
	}
	w.line("SHRQ $2, CX")
	w.line("JZ rest")
	w.label("four")
	w.line("MOVQ panels+16(FP), R12")
	w.line("MOVQ SI, BX") // the row, at the panel's first column
	w.line("MOVQ DI, DX")
	w.label("fourpanels")
	rows := []string{"", "(R10*1)", "(R10*2)", "(R11*1)"}[:a.per]
	w.line("MOVQ BX, R14")
	word := -1
	for n, p := range pieces {
		if p.word > word {
			word++
			if word > 0 {
				w.line("LEAQ (R14)(R10*%d), R14", a.per)
			}
			w.line("LEAQ (R14)(R13*1), R9")
			for _, row := range rows {
				w.line("PREFETCHT0 (R9)%s", row)
			}
		}
		load := a.load
		if n%2 == 0 {
			load += ".Z"
		}
		for i, row := range rows {
			w.line("%s %d(R14)%s, K%d, Z%d", load, -p.lane*a.size, row, p.mask, i)
		}
		if n%2 == 1 {
			a.combine(w, []string{"Z0", "Z1", "Z2", "Z3"}, "Z0")
			w.line("VMOVDQU32 Z0, %d(DX)", 64*(n/2))
		}
	}
	w.line("ADDQ $%d, BX", 12*a.size)
	w.line("ADDQ R8, DX")
	w.line("DECQ R12")
	w.line("JNZ fourpanels")
	for range 4 {
		w.line("LEAQ (SI)(R10*%d), SI", a.per)
	}
	w.line("ADDQ $192, DI")
	w.line("DECQ CX")
	w.line("JNZ four")
	w.label("rest")
	w.line("MOVL $0xfff, AX")
	w.line("KMOVW AX, K3")
	w.line("MOVQ words+48(FP), CX")
	w.line("ANDQ $3, CX")
	w.line("JZ done")
}

var acrosses512 = []across512{
	{name: "acrossWords", size: 4, per: 1, load: "VMOVDQU32", prepare: func(*writer) {},
		combine: func(*writer, []string, string) {}},
	{name: "acrossRounded", size: 4, per: 1, load: "VMOVDQU32", prepare: roundingConstants512,
		combine: func(w *writer, in []string, _ string) { round512(w, in[0], "Z16") }},
	{name: "acrossWidened", size: 2, per: 1, load: "VPMOVZXWD", prepare: func(*writer) {},
		combine: func(w *writer, in []string, to string) {
			w.line("VPSLLD $16, %s, %s", in[0], to)
		}},
	{name: "acrossRoundedHalves", size: 4, per: 2, load: "VMOVDQU32", prepare: roundingConstants512,
		combine: func(w *writer, in []string, to string) {
			roundUpper512(w, in[0], "Z16")
			roundUpper512(w, in[1], "Z17")
			w.line("VPSRLD $16, Z16, %s", to)
			w.line("VPTERNLOGD $0xf8, %s, Z17, %s", upper512, to) // to or Z17 and upper
		}},
	{name: "acrossHalves", size: 2, per: 2, load: "VPMOVZXWD", prepare: func(*writer) {},
		combine: func(w *writer, in []string, to string) {
			w.line("VPSLLD $16, %s, %[1]s", in[1])
			w.line("VPORD %s, %s, %s", in[1], in[0], to)
		}},
	{name: "acrossQuads", size: 1, per: 4, load: "VPMOVZXBD", prepare: func(*writer) {},
		combine: func(w *writer, in []string, to string) {
			for i := 1; i < 4; i++ {
				w.line("VPSLLD $%d, %s, %[2]s", 8*i, in[i])
			}
			w.line("VPORD %s, %s, %s", in[1], in[0], to)
			w.line("VPTERNLOGD $0xfe, %s, %s, %s", in[2], in[3], to) // or
		}},
}

func acrossAll512(w *writer) {
	for _, shape := range shapes512 {
		for _, a := range acrosses512 {
			a.write(w, shape)
		}
	}
}

// shifted512 writes a function that adds 128 to every byte of 64-byte blocks.
func shifted512(w *writer) {
	w.function("shifted512(words *uint32, blocks int)", "shifted512", 16)
	w.line("MOVQ words+0(FP), DI")
	w.line("MOVQ blocks+8(FP), CX")
	w.line("MOVL $0x80808080, AX")
	w.line("VPBROADCASTD AX, Z1")
	w.label("loop")
	w.line("VPADDB (DI), Z1, Z0")
	w.line("VMOVDQU32 Z0, (DI)")
	w.line("ADDQ $64, DI")
	w.line("DECQ CX")
	w.line("JNZ loop")
	w.line("VZEROUPPER")
	w.line("RET")
}

// columnSums512 writes a function that sums the signed bytes of each column of a panel of 32, by
// multiplying them by ones.
func columnSums512(w *writer) {
	w.function("columnSums512(sums *int32, panel *uint32, words int)", "columnSums512", 24)
	w.line("MOVQ sums+0(FP), DI")
	w.line("MOVQ panel+8(FP), SI")
	w.line("MOVQ words+16(FP), CX")
	w.line("MOVL $0x01010101, AX")
	w.line("VPBROADCASTD AX, Z2")
	w.line("VMOVDQU32 (DI), Z0")
	w.line("VMOVDQU32 64(DI), Z1")
	w.label("loop")
	w.line("VPDPBUSD (SI), Z2, Z0")
	w.line("VPDPBUSD 64(SI), Z2, Z1")
	w.line("ADDQ $128, SI")
	w.line("DECQ CX")
	w.line("JNZ loop")
	w.line("VMOVDQU32 Z0, (DI)")
	w.line("VMOVDQU32 Z1, 64(DI)")
	w.line("VZEROUPPER")
	w.line("RET")
}

// finish512 writes the function of [finish] for 32 columns, each with a correction and a scale.
// Results are float32 or, if short is set, rounded to bfloat16.
func finish512(w *writer) {
	w.function("finishCodes512(rows int, sums *uint32, sumStride int, out unsafe.Pointer, outStride "+
		"int, corrections *int32, rowScales, columnScales *float32, short bool)", "finishCodes512", 65)
	w.line("MOVQ rows+0(FP), CX")
	w.line("MOVQ sums+8(FP), SI")
	w.line("MOVQ sumStride+16(FP), R8")
	w.line("MOVQ out+24(FP), DI")
	w.line("MOVQ outStride+32(FP), R9")
	w.line("MOVQ corrections+40(FP), R10")
	w.line("MOVQ rowScales+48(FP), R13")
	w.line("MOVQ columnScales+56(FP), R12")
	w.line("SHLQ $2, R8")
	w.line("SHLQ $1, R9")
	halvesConstants512(w)
	for i := range 2 {
		w.line("VMOVDQU32 %d(R10), Z%d", 64*i, 20+i)
		w.line("VMOVUPS %d(R12), Z%d", 64*i, 22+i)
	}
	row := func() {
		w.line("VBROADCASTSS (R13), Z24")
		for i := range 2 {
			w.line("VMOVDQU32 %d(SI), Z%d", 64*i, i)
			w.line("VPSUBD Z%d, Z%d, Z%[2]d", 20+i, i)
			w.line("VCVTDQ2PS Z%d, Z%[1]d", i)
			w.line("VMULPS Z24, Z%d, Z%[1]d", i)
			w.line("VMULPS Z%d, Z%d, Z%[2]d", 22+i, i)
		}
		w.line("ADDQ R8, SI")
		w.line("ADDQ $4, R13")
	}
	w.line("CMPB short+64(FP), $0")
	w.line("JNE short")
	w.line("SHLQ $1, R9")
	w.label("row")
	row()
	w.line("VMOVUPS Z0, (DI)")
	w.line("VMOVUPS Z1, 64(DI)")
	w.line("ADDQ R9, DI")
	w.line("DECQ CX")
	w.line("JNZ row")
	w.line("VZEROUPPER")
	w.line("RET")
	w.label("short")
	row()
	roundUpper512(w, "Z0", "Z2")
	roundUpper512(w, "Z1", "Z3")
	w.line("VPERMT2W Z3, %s, Z2", upperHalves512)
	w.line("VMOVDQU32 Z2, (DI)")
	w.line("ADDQ R9, DI")
	w.line("DECQ CX")
	w.line("JNZ short")
	w.line("VZEROUPPER")
	w.line("RET")
}
