package main

// peaks writes a loop for each instruction to be measured: twelve independent sums, which is enough for a latency of
// five and two multipliers.
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
		{"peakQuads256", func(w *writer, i int) {
			w.line("VPMADDUBSW Y0, Y1, Y%d", 2+i%2)
			w.line("VPADDW Y%d, Y%d, Y%[2]d", 2+i%2, 4+i)
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
