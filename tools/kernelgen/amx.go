package main

import "fmt"

// Kernels for AMX, which has eight tile registers of 16 rows of 64 bytes. An instruction multiplies
// a left tile, with 16 words of 16 rows, by a right tile, with 16 words of 16 columns, and adds the
// products to 16 × 16 sums. Right panels already have the layout of tiles, a row of columns for
// each word; left panels store 16 words of a row contiguously. Go's assembler does not support
// these instructions; their encodings are from Intel, "64 and IA-32 Architectures Software
// Developer's Manual", volume 2.

// numbers maps registers that address memory to their numbers.
var numbers = map[string]int{
	"AX": 0, "CX": 1, "DX": 2, "BX": 3, "SI": 6, "DI": 7,
	"R8": 8, "R9": 9, "R10": 10, "R11": 11, "R12": 12, "R13": 13, "R14": 14, "R15": 15,
}

// Instruction prefixes as encoded in VEX.
const (
	prefix66 = 1
	prefixF3 = 2
	prefixF2 = 3
)

// tileMemory encodes an instruction that loads or stores a tile, VEX.128.pp.0F38.W0 4B /r. Rows in
// memory are step bytes apart.
func tileMemory(name string, pp, tile int, base, step string, offset int) string {
	b, s := numbers[base], numbers[step]
	return fmt.Sprintf("LONG $0x4b%02x%02xc4; WORD $0x%02x%02x; LONG $0x%08x // %s T%d, %d(%s)(%s*1)",
		0x78|pp, 0xe2&^(bit(s, 3)<<6)&^(bit(b, 3)<<5), s&7<<3|b&7, 0x84|tile<<3,
		uint32(int32(offset)), name, tile, offset, base, step)
}

func tileLoad(tile int, base, step string, offset int) string {
	return tileMemory("TILELOADD", prefixF2, tile, base, step, offset)
}

// tileLoadOnce loads a tile that is not soon needed again (non-temporally), so that the panel in
// use stays in the L1 cache.
func tileLoadOnce(tile int, base, step string, offset int) string {
	return tileMemory("TILELOADDT1", prefix66, tile, base, step, offset)
}

func tileStore(tile int, base, step string, offset int) string {
	return tileMemory("TILESTORED", prefixF3, tile, base, step, offset)
}

// tileZero encodes VEX.128.F2.0F38.W0 49 11:rrr:000.
func tileZero(tile int) string {
	return fmt.Sprintf("LONG $0x497be2c4; BYTE $0x%02x // TILEZERO T%d", 0xc0|tile<<3, tile)
}

// tileProduct adds the product of a left and a right tile to a tile of sums. It encodes
// VEX.128.pp.0F38.W0 opcode 11:rrr:bbb.
func tileProduct(name string, pp, opcode, sum, left, right int) string {
	return fmt.Sprintf("LONG $0x%02x%02xe2c4; BYTE $0x%02x // %s T%d, T%d, T%d", opcode,
		0x78&^(right<<3)|pp, 0xc0|sum<<3|left, name, right, left, sum)
}

func tdpbf16ps(sum, left, right int) string {
	return tileProduct("TDPBF16PS", prefixF3, 0x5c, sum, left, right)
}

func tdpbssd(sum, left, right int) string {
	return tileProduct("TDPBSSD", prefixF2, 0x5e, sum, left, right)
}

// configureTiles encodes VEX.128.NP.0F38.W0 49 /0 with the address in AX.
func configureTiles(w *writer) {
	w.line("LEAQ tileShapes<>(SB), AX")
	w.line("LONG $0x4978e2c4; BYTE $0x00 // LDTILECFG (AX)")
}

// releaseTiles resets the tiles, so that a context switch has less state to save.
func releaseTiles(w *writer) { w.line("LONG $0x4978e2c4; BYTE $0xc0 // TILERELEASE") }

// tileShapes writes the data for configureTiles: all tiles have 16 rows of 64 bytes.
func tileShapes(w *writer) {
	w.WriteString("\n")
	words := [16]uint32{0: 1}
	for i := range 4 {
		words[4+i] = 64<<16 | 64
	}
	words[12], words[13] = 0x10101010, 0x10101010
	for i, x := range words {
		fmt.Fprintf(w, "DATA tileShapes<>+%d(SB)/4, $0x%08x\n", 4*i, x)
	}
	w.WriteString("GLOBL tileShapes<>(SB), RODATA|NOPTR, $64\n")
}

// Sizes for a block of 32 × 32 sums. The sums are in tiles 0 … 3, row by row, columns of the right
// operand in tiles 4 and 5, and rows of the left operand in tiles 6 and 7.
const (
	tileRows  = 16
	tileBytes = 1024
)

// amxKernel multiplies strips of 32 rows by panels of 32 columns.
type amxKernel struct {
	name    string
	product func(sum, left, right int) string
	short   bool // can round the sums to bfloat16
}

const (
	amxArguments = "(steps, tiles int, left *uint32, apart int, right *uint32, from *uint32, " +
		"fromStride int, to unsafe.Pointer, stride int, short *uint32, ahead *uint32, aheadWords int)"
	amxSize = 96
)

// write writes the kernel. A step is 16 words along the sums. SI and BX point into the left and the
// right panel, CX counts steps, and R14 is the start of the left panel. DI is the block of results
// and DX its row stride in bytes; R8 and R12 are the same for the addend. R11 points into the panel
// to prefetch, R9 to the row of results to prefetch, and R10 to that of the next addend. Sums to be
// rounded are first stored in short, memory for one block.
func (k amxKernel) write(w *writer) {
	w.function(k.name+amxArguments, k.name, amxSize)
	configureTiles(w)
	w.line("MOVQ left+16(FP), R14")
	w.line("MOVQ from+40(FP), R8")
	w.line("MOVQ fromStride+48(FP), R12")
	w.line("MOVQ to+56(FP), DI")
	w.line("MOVQ stride+64(FP), DX")
	w.line("MOVQ ahead+80(FP), R11")
	w.line("SHLQ $2, R12")
	w.line("SHLQ $1, DX")
	w.line("CMPQ short+72(FP), $0")
	w.line("JNE strides")
	w.line("SHLQ $1, DX")
	w.label("strides")
	w.line("MOVQ $64, AX")
	w.line("MOVQ $128, R15")
	w.label("tile")
	w.line("MOVQ R14, SI")
	w.line("MOVQ right+32(FP), BX")
	w.line("MOVQ DI, R9")
	w.line("MOVQ steps+0(FP), CX")
	w.line("TESTQ R8, R8")
	w.line("JNE from")
	for tile := range 4 {
		w.line("%s", tileZero(tile))
	}
	k.steps(w, "", func() {})
	w.line("JMP store")
	w.label("from")
	w.line("%s", tileLoad(0, "R8", "R12", 0))
	w.line("%s", tileLoad(1, "R8", "R12", 64))
	w.line("MOVQ R12, R10")
	w.line("SHLQ $4, R10")
	w.line("ADDQ R10, R8")
	w.line("%s", tileLoad(2, "R8", "R12", 0))
	w.line("%s", tileLoad(3, "R8", "R12", 64))
	w.line("ADDQ R10, R8")
	w.line("MOVQ R8, R10")
	k.steps(w, "from", func() {
		w.line("PREFETCHT0 (R10)")
		w.line("PREFETCHT0 64(R10)")
		w.line("ADDQ R12, R10")
	})
	w.label("store")
	if k.short {
		w.line("MOVQ short+72(FP), R9")
		w.line("TESTQ R9, R9")
		w.line("JNE short")
	}
	w.line("%s", tileStore(0, "DI", "DX", 0))
	w.line("%s", tileStore(1, "DI", "DX", 64))
	w.line("MOVQ DX, R10")
	w.line("SHLQ $4, R10")
	w.line("ADDQ R10, DI")
	w.line("%s", tileStore(2, "DI", "DX", 0))
	w.line("%s", tileStore(3, "DI", "DX", 64))
	w.line("ADDQ R10, DI")
	w.label("next")
	w.line("MOVQ apart+24(FP), R10")
	w.line("LEAQ (R14)(R10*4), R14")
	// At the end of the panel to prefetch, start again at its beginning.
	w.line("MOVQ ahead+80(FP), R9")
	w.line("MOVQ aheadWords+88(FP), R10")
	w.line("LEAQ (R9)(R10*4), R10")
	w.line("CMPQ R11, R10")
	w.line("CMOVQCC R9, R11")
	w.line("DECQ tiles+8(FP)")
	w.line("JNZ tile")
	releaseTiles(w)
	w.line("VZEROUPPER")
	w.line("RET")
	if !k.short {
		return
	}
	w.label("short")
	w.line("%s", tileStore(0, "R9", "R15", 0))
	w.line("%s", tileStore(1, "R9", "R15", 64))
	w.line("%s", tileStore(2, "R9", "R15", tileRows*128))
	w.line("%s", tileStore(3, "R9", "R15", tileRows*128+64))
	w.line("MOVQ $%d, CX", tileRows)
	w.label("row")
	for i := range 2 {
		w.line("VMOVUPS %d(R9), Z0", 128*i)
		w.line("VMOVUPS %d(R9), Z1", 128*i+64)
		w.line("%s", vcvtne2ps2bf16(0, 1, 0))
		w.line("VMOVDQU32 Z0, (DI)")
		w.line("ADDQ DX, DI")
	}
	w.line("ADDQ $256, R9")
	w.line("DECQ CX")
	w.line("JNZ row")
	w.line("JMP next")
}

// steps adds the products of CX steps to the sums. Each of the first steps prefetches four rows of
// the results, and calls row to prefetch what else is needed for a row. Prefetching more at a time
// would delay words that are needed now.
func (k amxKernel) steps(w *writer, label string, row func()) {
	w.line("TESTQ CX, CX")
	w.line("JZ store")
	w.line("MOVQ $%d, R13", 2*tileRows/4)
	w.line("CMPQ CX, R13")
	w.line("CMOVQLT CX, R13")
	w.line("SUBQ R13, CX")
	w.label("first" + label)
	k.step(w)
	for range 4 {
		w.line("PREFETCHT0 (R9)")
		w.line("ADDQ DX, R9")
		row()
	}
	w.line("DECQ R13")
	w.line("JNZ first%s", label)
	w.line("TESTQ CX, CX")
	w.line("JZ store")
	w.label("step" + label)
	k.step(w)
	w.line("DECQ CX")
	w.line("JNZ step%s", label)
}

// step adds the products of 16 words.
func (k amxKernel) step(w *writer) {
	w.line("%s", tileLoad(4, "BX", "R15", 0))
	w.line("%s", tileLoadOnce(6, "SI", "AX", 0))
	w.line("%s", k.product(0, 6, 4))
	w.line("%s", tileLoad(5, "BX", "R15", 64))
	w.line("%s", k.product(1, 6, 5))
	w.line("%s", tileLoadOnce(7, "SI", "AX", tileBytes))
	w.line("%s", k.product(2, 7, 4))
	w.line("%s", k.product(3, 7, 5))
	w.line("PREFETCHT1 (R11)")
	w.line("PREFETCHT1 64(R11)")
	w.line("ADDQ $128, R11")
	w.line("ADDQ $%d, SI", 2*tileBytes)
	w.line("ADDQ $%d, BX", 2*tileBytes)
}

func amxKernels(w *writer) {
	amxKernel{name: "halvesAMX", product: tdpbf16ps, short: true}.write(w)
	amxKernel{name: "quadsAMX", product: tdpbssd}.write(w)
}

// Packers for left panels of 32 rows, which store 16 words of a row contiguously.

// alongTiled writes a packer for matrices with contiguous rows. It processes one row after another.
func alongTiled(w *writer, name string, bytes int, prepare func(*writer), words func(w *writer)) {
	w.function(name+"(dst *uint32, src unsafe.Pointer, ld, blocks int)", name, 32)
	w.line("MOVQ dst+0(FP), DI")
	w.line("MOVQ src+8(FP), SI")
	w.line("MOVQ ld+16(FP), R8")
	prepare(w)
	w.line("MOVQ $32, DX")
	w.label("row")
	w.line("MOVQ blocks+24(FP), CX")
	w.line("MOVQ SI, BX")
	w.line("MOVQ DI, R9")
	w.label("block")
	words(w) // of 16 words at BX, in Z0
	w.line("VMOVDQU32 Z0, (R9)")
	w.line("ADDQ $%d, BX", bytes)
	w.line("ADDQ $%d, R9", 2*tileBytes)
	w.line("DECQ CX")
	w.line("JNZ block")
	w.line("ADDQ R8, SI")
	w.line("ADDQ $64, DI")
	w.line("DECQ DX")
	w.line("JNZ row")
	w.line("VZEROUPPER")
	w.line("RET")
}

// writeTiled writes a packer for matrices with contiguous columns. It makes words for 16 rows and
// 16 positions along the sums, as an [across512] does, and transposes them. Masks K1 and K2 select
// the existing rows of the last panel; other panels are complete.
func (a across512) writeTiled(w *writer) {
	name := a.name + "Tiled"
	w.function(name+"(dst *uint32, panel, panels int, columns uint32, src unsafe.Pointer, ld, "+
		"blocks int)", name, 56)
	w.line("MOVQ dst+0(FP), DI")
	w.line("MOVQ panel+8(FP), R8")
	w.line("MOVL columns+24(FP), AX")
	w.line("KMOVW AX, K1")
	w.line("SHRL $16, AX")
	w.line("KMOVW AX, K2")
	w.line("MOVQ src+32(FP), SI")
	w.line("MOVQ ld+40(FP), R10")
	w.line("MOVQ blocks+48(FP), CX")
	w.line("SHLQ $2, R8")
	w.line("LEAQ (R10)(R10*2), R11")
	w.line("MOVQ R10, R13")
	w.line("SHLQ $%d, R13", log2(16*a.per)) // a block of 16 words
	a.prepare(w)
	w.label("block")
	w.line("MOVQ panels+16(FP), R12")
	w.line("MOVQ SI, BX") // the first row of the block, at the panel's first column
	w.line("MOVQ DI, DX")
	w.label("panelloop")
	indices := []string{"", "(R10*1)", "(R10*2)", "(R11*1)"}[:a.per]
	for half := range 2 {
		w.line("MOVQ BX, R14")
		for word := range 16 {
			in := make([]string, a.per)
			for i, index := range indices {
				in[i] = fmt.Sprintf("Z%d", 18+i)
				w.line("%s.Z %d(R14)%s, K%d, %s", a.load, 16*a.size*half, index, 1+half, in[i])
			}
			a.combine(w, in, fmt.Sprintf("Z%d", word))
			w.line("LEAQ (R14)(R10*%d), R14", a.per)
		}
		for row, z := range transpose16(w) {
			w.line("VMOVDQU32 Z%d, %d(DX)", z, half*tileBytes+64*row)
		}
	}
	w.line("ADDQ $%d, BX", a.size*32)
	w.line("ADDQ R8, DX")
	w.line("DECQ R12")
	w.line("JNZ panelloop")
	w.line("ADDQ R13, SI")
	w.line("ADDQ $%d, DI", 2*tileBytes)
	w.line("DECQ CX")
	w.line("JNZ block")
	w.line("VZEROUPPER")
	w.line("RET")
}

// transpose16 transposes the 16 × 16 words in Z0 … Z15, using one more register. It returns the
// register that contains each row.
func transpose16(w *writer) [16]int {
	var at [16]int
	for i := range at {
		at[i] = i
	}
	spare := 16
	// Each step combines two vectors into two others: low makes the first and high the second.
	step := func(i, j int, low, high string) {
		w.line("%s", fmt.Sprintf(low, at[j], at[i], spare))
		w.line("%s", fmt.Sprintf(high, at[j], at[i], at[j]))
		at[i], spare = spare, at[i]
	}
	for i := 0; i < 16; i += 2 {
		step(i, i+1, "VUNPCKLPS Z%d, Z%d, Z%d", "VUNPCKHPS Z%d, Z%d, Z%d")
	}
	for i := 0; i < 16; i += 4 {
		for j := range 2 {
			step(i+j, i+j+2, "VUNPCKLPD Z%d, Z%d, Z%d", "VUNPCKHPD Z%d, Z%d, Z%d")
		}
	}
	// Now vector 4g+j has, in lane l, words 4g … 4g+3 of row 4l+[0 2 1 3][j].
	for g := 0; g < 16; g += 4 {
		at[g+1], at[g+2] = at[g+2], at[g+1]
	}
	const even, odd = "VSHUFF64X2 $0x88, Z%d, Z%d, Z%d", "VSHUFF64X2 $0xdd, Z%d, Z%d, Z%d"
	for j := range 4 {
		step(j, j+4, even, odd) // lanes 0 and 2 of the first two vectors, then 1 and 3
		step(j+8, j+12, even, odd)
		step(j, j+8, even, odd) // lane 0 of all four vectors, then lane 2
		step(j+4, j+12, even, odd)
	}
	return at
}

// tiledPackers writes the packers of left panels.
func tiledPackers(w *writer) {
	alongTiled(w, "alongTiled", 64, func(*writer) {}, func(w *writer) { w.line("VMOVDQU32 (BX), Z0") })
	alongTiled(w, "alongRoundedHalvesTiled", 128, halvesConstants512, func(w *writer) {
		w.line("VMOVUPS (BX), Z16")
		w.line("VMOVUPS 64(BX), Z17")
		roundUpper512(w, "Z16", "Z0")
		roundUpper512(w, "Z17", "Z18")
		w.line("VPERMT2W Z18, %s, Z0", upperHalves512)
	})
	for _, a := range acrosses512 {
		if a.per > 1 {
			a.writeTiled(w)
		}
	}
}
