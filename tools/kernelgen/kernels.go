package main

import "fmt"

// A kernel multiplies a panel of rows by a panel of two vectors of columns. The sums, row by row, are in the first registers
// for AVX-512 and behind the operands for AVX2.
type kernel struct {
	name     string
	rows     int
	register string // Y or Z
	bytes    int    // of a register
	sum      int    // first register of the sums
	right    int    // first of the two registers with words of the right operand
	left     []int  // registers that take turns with words of the left operand
	load     string
	zero     string
	add      string // for the tile in memory
	// multiply adds the product of a left and a right register to a sum.
	multiply func(w *writer, left, right, sum int)
	unrolled int
	ahead    bool // asks for memory before it is needed
}

// kernelArguments are those of all kernels, and their size in bytes.
const (
	kernelArguments = "(words, steps int, a, b, c *uint32, stride int, accumulate bool, next *ahead)"
	kernelSize      = 64
)

// Registers: SI and BX walk along the panels of the left and the right operand, CX counts words, DI is the tile, DX the
// distance of its rows in bytes.
func (k kernel) write(w *writer) {
	w.function(k.name+kernelArguments, k.name, kernelSize)
	k.arguments(w)
	k.clear(w)
	k.loop(w, "CX", "")
	k.store(w)
	w.line("VZEROUPPER")
	w.line("RET")
}

func (k kernel) arguments(w *writer) {
	w.line("MOVQ words+0(FP), CX")
	w.line("MOVQ a+16(FP), SI")
	w.line("MOVQ b+24(FP), BX")
	w.line("MOVQ c+32(FP), DI")
	w.line("MOVQ stride+40(FP), DX")
	w.line("SHLQ $2, DX")
}

func (k kernel) reg(i int) string { return fmt.Sprintf("%s%d", k.register, i) }

func (k kernel) clear(w *writer) {
	for i := range 2 * k.rows {
		w.line("%s %[2]s, %[2]s, %[2]s", k.zero, k.reg(k.sum+i))
	}
}

// loop multiplies as many words as a register says, which it counts down. The rest of a division by the number of unrolled
// steps comes first.
func (k kernel) loop(w *writer, count, label string) {
	w.line("MOVQ %s, AX", count)
	w.line("ANDQ $%d, AX", k.unrolled-1)
	w.line("JZ many%s", label)
	w.label("one" + label)
	k.step(w, 0)
	k.advance(w, 1)
	w.line("DECQ AX")
	w.line("JNZ one%s", label)
	w.label("many" + label)
	w.line("SHRQ $%d, %s", log2(k.unrolled), count)
	w.line("JZ end%s", label)
	if k.ahead {
		k.rowsAhead(w, count, label)
	}
	w.label("loop" + label)
	for i := range k.unrolled {
		k.step(w, i)
		if k.ahead && i%2 == 0 {
			w.line("PREFETCHT1 (R11)")
			w.line("ADDQ $64, R11")
		}
	}
	k.advance(w, k.unrolled)
	w.line("DECQ %s", count)
	w.line("JNZ loop%s", label)
	w.label("end" + label)
}

// rowsAhead is the beginning of the loop. It asks for the rows of the output, one at a time, so that the multipliers do not wait
// for a free buffer of the cache; what follows asks for the next panel.
func (k kernel) rowsAhead(w *writer, count, label string) {
	w.line("MOVQ next+56(FP), AX")
	w.line("MOVQ (AX), R9")
	w.line("MOVQ 8(AX), R10")
	w.line("MOVQ 16(AX), R11")
	w.line("MOVQ $%d, AX", k.rows)
	w.line("CMPQ %s, AX", count)
	w.line("CMOVQLT %s, AX", count)
	w.line("SUBQ AX, %s", count)
	w.label("row" + label)
	for i := range k.unrolled {
		k.step(w, i)
		if i < 2 {
			w.line("PREFETCHT1 %d(R9)", 64*i)
		}
	}
	k.advance(w, k.unrolled)
	w.line("ADDQ R10, R9")
	w.line("DECQ AX")
	w.line("JNZ row%s", label)
	w.line("TESTQ %s, %[1]s", count)
	w.line("JZ end%s", label)
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

// store stores the sums, or adds them to the tile.
func (k kernel) store(w *writer) {
	w.line("CMPB accumulate+48(FP), $0")
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

// kernel256 has six rows: twelve sums, two words of the right operand and two more registers are all that there are.
func kernel256(name string) kernel {
	return kernel{name: name, rows: 6, register: "Y", bytes: 32, sum: 4, right: 0, left: []int{2, 3}, load: "VMOVDQU", zero: "VPXOR", add: "VPADDD", unrolled: 4}
}

// kernel512 has twelve rows, and so 24 of 32 registers for sums. The multipliers have a latency of four or five cycles and
// there are two of them: ten independent sums would do, but fewer rows would need more words of the right operand a product.
func kernel512(name string) kernel {
	return kernel{name: name, rows: 12, register: "Z", bytes: 64, sum: 0, right: 24, left: []int{26, 27, 28, 29}, load: "VMOVDQU32", zero: "VPXORD", add: "VPADDD", unrolled: 4, ahead: true}
}

func (k kernel) fma(w *writer, left, right, sum int) {
	w.line("VFMADD231PS %s, %s, %s", k.reg(right), k.reg(left), k.reg(sum))
}

func floats256(w *writer) {
	k := kernel256("floats256")
	k.load, k.add, k.multiply = "VMOVUPS", "VADDPS", k.fma
	k.write(w)
}

// pairs256 multiplies words of two int16 each.
func pairs256(w *writer) {
	k := kernel256("pairs256")
	k.left = []int{2}
	k.multiply = func(w *writer, left, right, sum int) {
		w.line("VPMADDWD Y%d, Y%d, Y3", right, left)
		w.line("VPADDD Y3, Y%d, Y%[1]d", sum)
	}
	k.write(w)
}

// quads256 multiplies words of four bytes, unsigned ones on the left. It adds up pairs in 16 bits, for as many words as
// steps says, and then adds these sums to the tile, which has 32 bits.
func quads256(w *writer) {
	k := kernel256("quads256")
	k.left = []int{2}
	k.multiply = func(w *writer, left, right, sum int) {
		w.line("VPMADDUBSW Y%d, Y%d, Y3", right, left)
		w.line("VPADDW Y3, Y%d, Y%[1]d", sum)
	}
	w.function("quads256"+kernelArguments, "quads256", kernelSize)
	k.arguments(w)
	w.line("CMPB accumulate+48(FP), $0")
	w.line("JNE chunk")
	w.line("VPXOR Y0, Y0, Y0")
	w.line("MOVQ DI, R9")
	for range k.rows {
		w.line("VMOVDQU Y0, 0(R9)")
		w.line("VMOVDQU Y0, 32(R9)")
		w.line("ADDQ DX, R9")
	}
	w.label("chunk")
	w.line("TESTQ CX, CX")
	w.line("JZ done")
	w.line("MOVQ steps+8(FP), R8")
	w.line("CMPQ R8, CX")
	w.line("CMOVQGT CX, R8")
	w.line("SUBQ R8, CX")
	k.clear(w)
	k.loop(w, "R8", "")
	w.line("VPCMPEQW Y0, Y0, Y0") // −1
	w.line("VPSRLW $15, Y0, Y0")  // 1
	w.line("MOVQ DI, R9")
	for r := range k.rows {
		for j := range 2 {
			w.line("VPMADDWD Y0, Y%d, Y1", k.sum+2*r+j)
			w.line("VPADDD %d(R9), Y1, Y1", 32*j)
			w.line("VMOVDQU Y1, %d(R9)", 32*j)
		}
		if r+1 < k.rows {
			w.line("ADDQ DX, R9")
		}
	}
	w.line("JMP chunk")
	w.label("done")
	w.line("VZEROUPPER")
	w.line("RET")
}

func floats512(w *writer) {
	k := kernel512("floats512")
	k.load, k.add, k.multiply = "VMOVUPS", "VADDPS", k.fma
	k.write(w)
}

// halves512 multiplies words of two bfloat16 each.
func halves512(w *writer) {
	k := kernel512("halves512")
	k.load, k.add = "VMOVUPS", "VADDPS"
	k.multiply = func(w *writer, left, right, sum int) { w.line("%s", vdpbf16ps(sum, left, right)) }
	k.write(w)
}

// quads512 multiplies words of four bytes, unsigned ones on the left.
func quads512(w *writer) {
	k := kernel512("quads512")
	k.multiply = func(w *writer, left, right, sum int) {
		w.line("VPDPBUSD Z%d, Z%d, Z%d", right, left, sum)
	}
	k.write(w)
}

// vdpbf16ps is VDPBF16PS sum, left, right on registers of 512 bits, EVEX.512.F3.0F38.W0 52 /r (Intel, Architecture
// Instruction Set Extensions Programming Reference), as bytes: Go's assembler does not know it. The prefix keeps the
// upper bits of the registers' numbers inverted.
func vdpbf16ps(sum, left, right int) string {
	b := [6]int{
		0x62,
		0xf2 &^ (bit(sum, 3) << 7) &^ (bit(right, 4) << 6) &^ (bit(right, 3) << 5) &^ (bit(sum, 4) << 4),
		0x06 | (^left&15)<<3,
		0x40 | (1^bit(left, 4))<<3,
		0x52,
		0xc0 | sum&7<<3 | right&7,
	}
	return fmt.Sprintf("LONG $0x%02x%02x%02x%02x; WORD $0x%02x%02x // VDPBF16PS Z%d, Z%d, Z%d", b[3], b[2], b[1], b[0], b[5], b[4], right, left, sum)
}

func bit(x, i int) int { return x >> i & 1 }
