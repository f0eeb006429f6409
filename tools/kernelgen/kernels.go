package main

import "fmt"

// A kernel multiplies a panel of rows by a panel whose width is two vectors. The sums are stored
// row by row, in the first registers for AVX-512 and after the operands for AVX2.
type kernel struct {
	name     string
	rows     int
	register string // Y or Z
	bytes    int    // of a register
	sum      int    // first register of the sums
	right    int    // first of the two registers with words of the right operand
	left     []int  // registers used in turn for words of the left operand
	load     string
	zero     string
	add      string // for the tile in memory
	// multiply adds the product of a left and a right register to a sum.
	multiply func(w *writer, left, right, sum int)
	unrolled int
	// narrow rounds the sums of a row to bfloat16 and returns their register. It uses registers
	// from Z24, which prepareNarrow fills. It is nil for single-tile kernels and integers.
	narrow        func(w *writer, low, high int) (register string)
	prepareNarrow func(w *writer)
	strips        bool // multiplies strips, which are columns of tiles
}

// Arguments of kernels for a single tile, and their size in bytes.
const (
	kernelArguments = "(words int, a, b, c *uint32, stride int, accumulate bool)"
	kernelSize      = 41
)

// Registers: SI and BX point into the left and the right panel, CX counts words, DI points to the
// tile, and DX is its row stride in bytes.
func (k kernel) write(w *writer) {
	w.function(k.name+kernelArguments, k.name, kernelSize)
	w.line("MOVQ words+0(FP), CX")
	w.line("MOVQ a+8(FP), SI")
	w.line("MOVQ b+16(FP), BX")
	w.line("MOVQ c+24(FP), DI")
	w.line("MOVQ stride+32(FP), DX")
	w.line("SHLQ $2, DX")
	k.clear(w)
	k.loop(w)
	k.store(w)
	w.line("VZEROUPPER")
	w.line("RET")
}

func (k kernel) reg(i int) string { return fmt.Sprintf("%s%d", k.register, i) }

func (k kernel) clear(w *writer) {
	for i := range 2 * k.rows {
		w.line("%s %[2]s, %[2]s, %[2]s", k.zero, k.reg(k.sum+i))
	}
}

// loop multiplies as many words as CX says. The loop is unrolled; the remaining words are processed
// first.
func (k kernel) loop(w *writer) {
	w.line("MOVQ CX, AX")
	w.line("ANDQ $%d, AX", k.unrolled-1)
	w.line("JZ many")
	w.label("one")
	k.step(w, 0)
	k.advance(w, 1)
	w.line("DECQ AX")
	w.line("JNZ one")
	w.label("many")
	w.line("SHRQ $%d, CX", log2(k.unrolled))
	w.line("JZ end")
	if k.strips {
		k.rowsAhead(w)
	}
	w.label("loop")
	for i := range k.unrolled {
		k.step(w, i)
		if k.strips && i%2 == 0 {
			w.line("PREFETCHT1 (R11)")
			w.line("ADDQ $64, R11")
		}
	}
	k.advance(w, k.unrolled)
	w.line("DECQ CX")
	w.line("JNZ loop")
	w.label("end")
}

// rowsAhead writes the first part of the loop, which prefetches the rows of the addend and the
// results, one at a time, so that the multipliers do not wait for a free fill buffer. The other
// part prefetches the next panel.
func (k kernel) rowsAhead(w *writer) {
	w.line("MOVQ DI, R9")
	w.line("MOVQ R8, R10")
	w.line("MOVQ $%d, AX", k.rows)
	w.line("CMPQ CX, AX")
	w.line("CMOVQLT CX, AX")
	w.line("SUBQ AX, CX")
	w.label("row")
	for i := range k.unrolled {
		k.step(w, i)
		w.line("PREFETCHT1 %d(%s)", 64*(i%2), []string{"R9", "R10"}[i/2])
	}
	k.advance(w, k.unrolled)
	w.line("ADDQ DX, R9")
	w.line("ADDQ R12, R10")
	w.line("DECQ AX")
	w.line("JNZ row")
	w.line("TESTQ CX, CX")
	w.line("JZ end")
}

func log2(n int) (log int) {
	for n > 1 {
		n, log = n/2, log+1
	}
	return log
}

func (k kernel) advance(w *writer, words int) {
	w.line("ADDQ $%d, SI", 4*k.rows*words)
	w.line("ADDQ $%d, BX", 2*k.bytes*words)
}

func (k kernel) step(w *writer, i int) {
	w.line("%s %d(BX), %s", k.load, 2*k.bytes*i, k.reg(k.right))
	w.line("%s %d(BX), %s", k.load, 2*k.bytes*i+k.bytes, k.reg(k.right+1))
	for r := range k.rows {
		left := k.left[r%len(k.left)]
		w.line("VPBROADCASTD %d(SI), %s", 4*(k.rows*i+r), k.reg(left))
		k.multiply(w, left, k.right, k.sum+2*r)
		k.multiply(w, left, k.right+1, k.sum+2*r+1)
	}
}

// store writes code that stores the sums, or adds them to the tile.
func (k kernel) store(w *writer) {
	w.line("CMPB accumulate+40(FP), $0")
	w.line("JEQ store")
	for r := range k.rows {
		for j := range 2 {
			w.line("%s %d(DI), %[3]s, %[3]s", k.add, j*k.bytes, k.reg(k.sum+2*r+j))
			w.line("%s %s, %d(DI)", k.load, k.reg(k.sum+2*r+j), j*k.bytes)
		}
		if r+1 < k.rows {
			w.line("ADDQ DX, DI")
		}
	}
	w.line("VZEROUPPER")
	w.line("RET")
	w.label("store")
	for r := range k.rows {
		for j := range 2 {
			w.line("%s %s, %d(DI)", k.load, k.reg(k.sum+2*r+j), j*k.bytes)
		}
		if r+1 < k.rows {
			w.line("ADDQ DX, DI")
		}
	}
}

// kernel256 returns a kernel with six rows. It uses all sixteen registers: twelve for sums, two for
// words of the right operand and two more.
func kernel256(name string) kernel {
	return kernel{name: name, rows: 6, register: "Y", bytes: 32, sum: 4, right: 0, left: []int{2, 3},
		load: "VMOVDQU", zero: "VPXOR", add: "VPADDD", unrolled: 4}
}

// kernel512 returns a kernel with twelve rows, which uses 24 of 32 registers for sums. Ten
// independent sums would suffice for two multipliers with a latency of four or five cycles, but
// with fewer rows, each product would need more words of the right operand.
func kernel512(name string) kernel {
	return kernel{name: name, rows: 12, register: "Z", bytes: 64, sum: 0, right: 24,
		left: []int{26, 27, 28, 29}, load: "VMOVDQU32", zero: "VPXORD", add: "VPADDD", unrolled: 4,
		strips: true}
}

// Arguments of kernels for strips, and their size in bytes. from, the addend, may be nil. ahead is
// a panel to prefetch.
const (
	stripArguments = "(words, tiles int, left *uint32, apart int, right *uint32, from *uint32, " +
		"fromStride int, to unsafe.Pointer, stride int, short bool, ahead *uint32, aheadWords int)"
	stripSize = 96
)

// writeStrip writes a kernel for strips. SI and BX point into the left and the right panel, which
// start at R14 and R13, and CX counts words. DI is the tile of results and DX its row stride in
// bytes. R8 and R12 are the same for the addend or, if there is none, for the results. R11 points
// into the panel to prefetch.
func (k kernel) writeStrip(w *writer) {
	w.function(k.name+stripArguments, k.name, stripSize)
	w.line("MOVQ left+16(FP), R14")
	w.line("MOVQ right+32(FP), R13")
	w.line("MOVQ from+40(FP), R8")
	w.line("MOVQ fromStride+48(FP), R12")
	w.line("MOVQ to+56(FP), DI")
	w.line("MOVQ stride+64(FP), DX")
	w.line("MOVQ ahead+80(FP), R11")
	w.line("SHLQ $2, R12")
	if k.narrow != nil {
		w.line("SHLQ $1, DX")
		w.line("CMPB short+72(FP), $0")
		w.line("JNE strides")
		w.line("SHLQ $1, DX")
		w.label("strides")
	} else {
		w.line("SHLQ $2, DX")
	}
	w.line("TESTQ R8, R8")
	w.line("CMOVQEQ DX, R12")
	w.line("CMOVQEQ DI, R8")
	w.label("tile")
	w.line("MOVQ words+0(FP), CX")
	w.line("MOVQ R14, SI")
	w.line("MOVQ R13, BX")
	k.clear(w)
	k.loop(w)
	w.line("CMPQ from+40(FP), $0")
	w.line("JEQ added")
	for r := range k.rows {
		for j := range 2 {
			w.line("%s %d(R8), %[3]s, %[3]s", k.add, j*k.bytes, k.reg(k.sum+2*r+j))
		}
		w.line("ADDQ R12, R8")
	}
	w.line("JMP store")
	w.label("added")
	w.line("LEAQ (R12)(R12*2), AX")
	w.line("LEAQ (R8)(AX*4), R8")
	w.label("store")
	if k.narrow != nil {
		w.line("CMPB short+72(FP), $0")
		w.line("JNE short")
	}
	for r := range k.rows {
		for j := range 2 {
			w.line("%s %s, %d(DI)", k.load, k.reg(k.sum+2*r+j), j*k.bytes)
		}
		w.line("ADDQ DX, DI")
	}
	w.label("next")
	w.line("MOVQ apart+24(FP), AX")
	w.line("LEAQ (R14)(AX*4), R14")
	// At the end of the panel to prefetch, start again at its beginning.
	w.line("MOVQ ahead+80(FP), R9")
	w.line("MOVQ aheadWords+88(FP), AX")
	w.line("LEAQ (R9)(AX*4), AX")
	w.line("CMPQ R11, AX")
	w.line("CMOVQCC R9, R11")
	w.line("DECQ tiles+8(FP)")
	w.line("JNZ tile")
	w.line("VZEROUPPER")
	w.line("RET")
	if k.narrow == nil {
		return
	}
	w.label("short")
	k.prepareNarrow(w)
	for r := range k.rows {
		w.line("VMOVDQU32 %s, (DI)", k.narrow(w, k.sum+2*r, k.sum+2*r+1))
		w.line("ADDQ DX, DI")
	}
	w.line("JMP next")
}

func (k kernel) fma(w *writer, left, right, sum int) {
	w.line("VFMADD231PS %s, %s, %s", k.reg(right), k.reg(left), k.reg(sum))
}

func floats256(w *writer) {
	k := kernel256("floats256")
	k.load, k.add, k.multiply = "VMOVUPS", "VADDPS", k.fma
	k.write(w)
}

// pairs256 writes a kernel for words of two int16.
func pairs256(w *writer) {
	k := kernel256("pairs256")
	k.left = []int{2}
	k.multiply = func(w *writer, left, right, sum int) {
		w.line("VPMADDWD Y%d, Y%d, Y3", right, left)
		w.line("VPADDD Y3, Y%d, Y%[1]d", sum)
	}
	k.write(w)
}

func floats512(w *writer) {
	k := kernel512("floats512")
	k.load, k.add, k.multiply = "VMOVUPS", "VADDPS", k.fma
	k.prepareNarrow = halvesConstants512
	k.narrow = func(w *writer, low, high int) string {
		roundUpper512(w, k.reg(low), "Z24")
		roundUpper512(w, k.reg(high), "Z25")
		w.line("VPERMT2W Z25, %s, Z24", upperHalves512)
		return "Z24"
	}
	k.writeStrip(w)
}

// halves512 writes a kernel for words of two bfloat16.
func halves512(w *writer) {
	k := kernel512("halves512")
	k.load, k.add = "VMOVUPS", "VADDPS"
	k.multiply = func(w *writer, left, right, sum int) { w.line("%s", vdpbf16ps(sum, left, right)) }
	k.prepareNarrow = func(*writer) {}
	k.narrow = func(w *writer, low, high int) string {
		w.line("%s", vcvtne2ps2bf16(low, high, low))
		return k.reg(low)
	}
	k.writeStrip(w)
}

// quads512 writes a kernel for words of four bytes, which are unsigned in the left operand.
func quads512(w *writer) {
	k := kernel512("quads512")
	k.multiply = func(w *writer, left, right, sum int) {
		w.line("VPDPBUSD Z%d, Z%d, Z%d", right, left, sum)
	}
	k.writeStrip(w)
}

// vdpbf16ps encodes VDPBF16PS sum, left, right for 512-bit registers, EVEX.512.F3.0F38.W0 52 /r
// (Intel, Architecture Instruction Set Extensions Programming Reference), which Go's assembler does
// not support.
func vdpbf16ps(sum, left, right int) string {
	return evex512("VDPBF16PS", 2, 0x52, sum, left,
		right)
}

// vcvtne2ps2bf16 encodes VCVTNE2PS2BF16 to, high, low for 512-bit registers, EVEX.512.F2.0F38.W0 72
// /r (same reference). It treats subnormal numbers as zero.
func vcvtne2ps2bf16(to, high, low int) string {
	return evex512("VCVTNE2PS2BF16", 3, 0x72, to, high, low)
}

// evex512 encodes an instruction EVEX.512.pp.0F38.W0 on three registers. The prefix contains the
// upper bits of the register numbers inverted.
func evex512(name string, pp, opcode, to, first, second int) string {
	b := [6]int{
		0x62,
		0xf2 &^ (bit(to, 3) << 7) &^ (bit(second, 4) << 6) &^ (bit(second, 3) << 5) &^ (bit(to, 4) << 4),
		0x04 | pp | (^first&15)<<3,
		0x40 | (1^bit(first, 4))<<3,
		opcode,
		0xc0 | to&7<<3 | second&7,
	}
	return fmt.Sprintf("LONG $0x%02x%02x%02x%02x; WORD $0x%02x%02x // %s Z%d, Z%d, Z%d", b[3], b[2],
		b[1], b[0], b[5], b[4], name, second, first, to)
}

func bit(x, i int) int { return x >> i & 1 }
