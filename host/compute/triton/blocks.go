package triton

import (
	"fmt"
	"math/bits"

	"github.com/cage-qat/cage/sdk/program"
)

// A BlockProduct is x·yᵀ for two matrices of four-bit floats (E2M1), x [Rows, Inner] and y [Columns, Inner]. Each row
// consists of blocks with a scale each: either blocks of 32 with scales in E8M0, powers of two, or blocks of 16 with
// scales in E4M3.
type BlockProduct struct {
	Rows, Columns, Inner, Block int
	// Sum says that the product is added to a float32 matrix of its shape.
	Sum bool
}

// blockFormats are the types of scales by the size of a block, as Triton names them: bytes are E8M0.
var blockFormats = map[int]string{32: "i8", 16: "f8E4M3FN"}

const codesPerByte = 2 // elements

// Sizes of a tile of a [BlockProduct]. The tensor cores of NVIDIA's Blackwell multiply 128 rows at once, and 64 elements.
const (
	productRows    = 128
	leastColumns   = 16
	largestColumns = 256
	leastInner     = 64
	largestInner   = 256
	productStages  = 3 // tiles that are read ahead: 48 KB each with the largest
)

// Kernel writes the product as a kernel. Its parameters are x [Rows, Inner/2], two numbers in a byte, the earlier in
// its lower bits; the scales of x [Rows, Inner/Block], a byte each; float32 factors of its rows, [Rows, 1]; the same
// three for y; the matrix to which the product is added, if there is one; and the result, stored as stored says. Sums
// are float32. If the sizes do not divide into tiles, the error is a [*Refusal].
func (p BlockProduct) Kernel(stored Storage) (*Kernel, error) {
	w := &writer{p: &program.Program{Name: "blocks/product"}}
	w.out = &w.text
	columns, inner := tileOf(p.Columns, largestColumns), tileOf(p.Inner, largestInner)
	warps := max(leastProductWarps, columns/warpColumns)
	if p.Sum { // another tile needs registers; with more than 8 warps, Triton takes no operation for four-bit floats
		columns = min(columns, largestColumns/2)
		warps = 8
	}
	if blockFormats[p.Block] == "" {
		return nil, w.refuse(fmt.Sprintf("there are no scales for blocks of %d: want 16 or 32", p.Block))
	}
	if p.Rows%productRows != 0 || columns < leastColumns || inner < leastInner {
		return nil, w.refuse(fmt.Sprintf("[%d, %d] times [%d, %d] is not whole tiles: want a multiple of %d rows, of %d and of %d",
			p.Rows, p.Inner, p.Inner, p.Columns, productRows, leastColumns, leastInner))
	}
	text := w.blockProduct(p, columns, inner, stored)
	return &Kernel{Name: w.name(), Text: text, Grid: p.Rows / productRows * (p.Columns / columns), Warps: warps, Stages: productStages}, nil
}

// warpColumns of a result of 128 rows are what each warp writes.
const (
	warpColumns       = 32
	leastProductWarps = 4
)

// tileOf is the largest power of two that divides n, at most largest.
func tileOf(n, largest int) int { return min(1<<bits.TrailingZeros(uint(n)), largest) }

// blockProduct is the text. Instances that follow each other share their rows of x, so that these and all of y, the
// weight, stay in the cache.
func (w *writer) blockProduct(p BlockProduct, columns, inner int, stored Storage) string {
	id := w.set("i32", nil, "tt.get_program_id x : i32")
	across := w.constant("i32", float64(p.Columns/columns))
	row := w.apply("arith.muli", w.apply("arith.divui", id, across), w.constant("i32", productRows))
	column := w.apply("arith.muli", w.apply("arith.remui", id, across), w.constant("i32", float64(columns)))
	x := w.matrix("%x", "i8", row, productRows, p.Inner/codesPerByte, inner/codesPerByte)
	scaleX := w.matrix("%scale_x", "i8", row, productRows, p.Inner/p.Block, inner/p.Block)
	y := w.matrix("%y", "i8", column, columns, p.Inner/codesPerByte, inner/codesPerByte)
	scaleY := w.matrix("%scale_y", "i8", column, columns, p.Inner/p.Block, inner/p.Block)

	result := []int{productRows, columns}
	zero, from, to, one := w.broadcastTo(w.constant("f32", 0), result), w.constant("i32", 0), w.constant("i32", float64(p.Inner/inner)), w.constant("i32", 1)
	sum := value{name: "%sum", elem: "f32", dims: result}
	w.line("%s = scf.for %%part = %s to %s step %s iter_args(%%partial = %s) -> (%s) : i32 {", sum.name, from.name, to.name, one.name, zero.name, sum.typ())
	part, partial := value{name: "%part", elem: "i32"}, value{name: "%partial", elem: "f32", dims: result}
	a, scaleA, b, scaleB := x.part(w, part), scaleX.part(w, part), y.part(w, part), scaleY.part(w, part)
	if format := blockFormats[p.Block]; format != "i8" {
		for _, s := range []*value{&scaleA, &scaleB} {
			*s = w.set(format, s.dims, "tt.bitcast %s : %s -> %s", s.name, s.typ(), typeText(format, s.dims))
		}
	}
	b = w.set("i8", []int{b.dims[1], b.dims[0]}, "tt.trans %s {order = array<i32: 1, 0>} : %s -> %s", b.name, b.typ(), typeText("i8", []int{b.dims[1], b.dims[0]}))
	next := w.set("f32", result, "tt.dot_scaled %s scale %s, %s scale %s, %s lhs = e2m1 rhs = e2m1 {fastMath = false} : %s, %s * %s, %s -> %s",
		a.name, scaleA.name, b.name, scaleB.name, partial.name, a.typ(), scaleA.typ(), b.typ(), scaleB.typ(), partial.typ())
	w.line("scf.yield %s : %s", next.name, next.typ())
	w.line("}")

	sum = w.apply("arith.mulf", sum, w.broadcastTo(w.overall("%overall_x", row, []int{productRows, 1}), result))
	sum = w.apply("arith.mulf", sum, w.broadcastTo(w.overall("%overall_y", column, []int{1, columns}), result))
	if p.Sum {
		before := w.matrix("%before", "f32", row, productRows, p.Columns, columns)
		sum = w.apply("arith.addf", sum, before.load(w, column))
	}
	out := w.matrix("%out", string(stored), row, productRows, p.Columns, columns)
	if stored == BFloat16 {
		sum = w.cast("arith.truncf", sum, "bf16")
	}
	w.line("tt.store %s, %s : %s", out.at(w, column).name, sum.name, out.first.typ())
	return w.module("", p.parameters(stored))
}

// parameters are those of [BlockProduct.Kernel].
func (p BlockProduct) parameters(stored Storage) (list []string) {
	for _, name := range []string{"x", "y"} {
		list = append(list, parameter("%"+name, "i8", wholeVector), parameter("%scale_"+name, "i8", wholeVector), parameter("%overall_"+name, "f32", wholeVector))
	}
	if p.Sum {
		list = append(list, parameter("%before", "f32", wholeVector))
	}
	return append(list, parameter("%out", string(stored), wholeVector))
}

// overall reads one float32 for each row of a tile, from the given on, into a value of these axes.
func (w *writer) overall(pointer string, row value, dims []int) value {
	n := []int{dims[0] * dims[1]}
	kind := "!tt.ptr<f32>"
	base := w.set(kind, nil, "tt.addptr %s, %s : %s, i32", pointer, row.name, kind)
	all, offset := w.broadcastTo(base, n), w.countTo(n[0])
	address := w.set(kind, n, "tt.addptr %s, %s : %s, %s", all.name, offset.name, all.typ(), offset.typ())
	return w.reshapeTo(w.set("f32", n, "tt.load %s : %s", address.name, address.typ()), dims)
}

// A tiled matrix is some rows of one in memory, and the addresses of their first columns.
type tiled struct {
	first value
	elem  string
}

// matrix has the rows from row on of a matrix with the given length of a row, of which a tile has the given columns. Where
// they begin is counted in 64 bits, because matrices may have more elements than 32 bits count.
func (w *writer) matrix(pointer, elem string, row value, rows, length, columns int) tiled {
	kind, dims := "!tt.ptr<"+elem+">", []int{rows, columns}
	start := w.apply("arith.muli", w.cast("arith.extsi", row, "i64"), w.constant("i64", float64(length)))
	base := w.set(kind, nil, "tt.addptr %s, %s : %s, i64", pointer, start.name, kind)
	lines := w.apply("arith.muli", w.countTo(rows), w.broadcastTo(w.constant("i32", float64(length)), []int{rows}))
	offset := w.apply("arith.addi", w.broadcastTo(w.reshapeTo(lines, []int{rows, 1}), dims), w.column(dims))
	all := w.broadcastTo(base, dims)
	return tiled{w.set(kind, dims, "tt.addptr %s, %s : %s, %s", all.name, offset.name, all.typ(), offset.typ()), elem}
}

// at are the addresses of the columns from the given one on.
func (t tiled) at(w *writer, column value) value {
	offset := w.broadcastTo(column, t.first.dims)
	return w.set(t.first.elem, t.first.dims, "tt.addptr %s, %s : %s, %s", t.first.name, offset.name, t.first.typ(), offset.typ())
}

// load reads the columns from the given one on.
func (t tiled) load(w *writer, column value) value {
	address := t.at(w, column)
	return w.set(t.elem, address.dims, "tt.load %s : %s", address.name, address.typ())
}

// part reads the tile of the given number.
func (t tiled) part(w *writer, part value) value {
	return t.load(w, w.apply("arith.muli", part, w.constant("i32", float64(t.first.dims[1]))))
}
