package main

import (
	"fmt"
	"math/rand/v2"
)

// peaks writes a loop for each instruction to measure. Twelve independent sums suffice for two
// multipliers with a latency of five cycles.
func peaks(w *writer) {
	for _, p := range []struct {
		name string
		step func(w *writer, i int)
	}{
		{"peakFMA256", func(w *writer, i int) { w.line("VFMADD231PS Y0, Y1, Y%d", 4+i) }},
		{"peakPairs256", func(w *writer, i int) {
			w.line("VPMADDWD Y0, Y1, Y%d", 2+i%2)
			w.line("VPADDD Y%d, Y%d, Y%[2]d", 2+i%2, 4+i)
		}},
		{"peakFMA512", func(w *writer, i int) { w.line("VFMADD231PS Z0, Z1, Z%d", 4+i) }},
		{"peakHalves512", func(w *writer, i int) { w.line("%s", vdpbf16ps(4+i, 1, 0)) }},
		{"peakPairs512", func(w *writer, i int) { w.line("VPDPWSSD Z0, Z1, Z%d", 4+i) }},
		{"peakQuads512", func(w *writer, i int) { w.line("VPDPBUSD Z0, Z1, Z%d", 4+i) }},
	} {
		w.function(p.name+"(n int)", p.name, 8)
		w.line("MOVQ n+0(FP), CX")
		for i := range 16 {
			w.line("VPXOR Y%d, Y%[1]d, Y%[1]d", i)
		}
		w.label("loop")
		for i := range 12 {
			p.step(w, i)
		}
		w.line("DECQ CX")
		w.line("JNZ loop")
		w.line("VZEROUPPER")
		w.line("RET")
	}
}

// peaksAMX writes such loops for tiles, with four independent sums, as in the kernels, three times.
// Operands are not zero, because zeros would need less power and run faster than other numbers.
func peaksAMX(w *writer) {
	for _, k := range []struct {
		name    string
		product func(sum, left, right int) string
	}{{"peakHalvesAMX", tdpbf16ps}, {"peakQuadsAMX", tdpbssd}} {
		w.function(k.name+"(n int)", k.name, 8)
		w.line("MOVQ n+0(FP), CX")
		configureTiles(w) // also sets them to zero
		w.line("LEAQ peakNumbers<>(SB), SI")
		w.line("MOVQ $64, AX")
		for tile := 4; tile < 8; tile++ {
			w.line("%s", tileLoad(tile, "SI", "AX", 0))
		}
		w.label("loop")
		for i := range 12 {
			w.line("%s", k.product(i%4, 6+i%4/2, 4+i%2))
		}
		w.line("DECQ CX")
		w.line("JNZ loop")
		releaseTiles(w)
		w.line("RET")
	}
}

// peakNumbers writes a tile of numbers of both signs with magnitudes around 1 in bfloat16.
func peakNumbers(w *writer) {
	w.WriteString("\n")
	r := rand.New(rand.NewPCG(1, 2))
	for i := range tileBytes / 4 {
		fmt.Fprintf(w, "DATA peakNumbers<>+%d(SB)/4, $0x%08x\n", 4*i, 0x3f003f00|r.Uint32()&0x80ff80ff)
	}
	fmt.Fprintf(w, "GLOBL peakNumbers<>(SB), RODATA|NOPTR, $%d\n", tileBytes)
}
