package triton

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
)

type writer struct {
	p      *program.Program
	rows   int // of the whole tensors
	stored map[string]passes.Storage
	tiling

	before  strings.Builder // code that is the same for all tiles of an instance
	text    strings.Builder // code for each tile
	out     *strings.Builder
	named   int
	part    int                       // the part of a row that is being written
	first   value                     // the first row of the tile
	starts  map[int]value             // offsets of the tile's first row, by elements per row
	hoisted map[string]value          // values that are the same for all tiles, by a key
	divisor value                     // before it was broadcast; zero if the current node has none
	current func(reason string) error // refuses the node that is being written
}

// parts is the lowered form of a program's value: a tile for each part of a row, or one for all.
type parts []value

// of returns the tile for the given part of a row.
func (p parts) of(part int) value { return p[min(part, len(p)-1)] }

func (w *writer) write() (text string, err error) {
	defer func() {
		if r := recover(); r != nil {
			refusal, ok := r.(*passes.Refusal)
			if !ok {
				panic(r)
			}
			err = refusal
		}
	}()
	w.starts, w.hoisted, w.out = map[int]value{}, map[string]value{}, &w.text
	inputs := make([]parts, len(w.p.Inputs))
	tile, end := w.eachTile()
	w.first = w.apply("arith.muli", tile, w.constant("i32", float64(w.tile)))
	for i, in := range w.p.Inputs {
		stored := w.memory(in.Name, in.Type)
		inputs[i] = w.load(fmt.Sprintf("%%in%d", i), in.Type, stored, w.isShared(program.ID(i)))
	}
	values := transform.Interpret(w.p, inputs, w.node)
	for w.part = range w.parts { // all of a part at once, so that its registers are free for the next
		for i, o := range w.p.Outputs {
			if w.isShared(o.Value) {
				panic(w.refuse("an output is a value that all rows share"))
			}
			t := w.p.TypeOf(o.Value)
			w.store(fmt.Sprintf("%%out%d", i), values[o.Value], t, w.memory(o.Name, t))
		}
	}
	w.out.WriteString(end)
	body := w.before.String() + w.text.String()
	return fmt.Sprintf(`module attributes {"ttg.maxnreg" = %d : i32} {
  tt.func public @%s(%s) attributes {noinline = false} {
%s    tt.return
  }
}
`, maxRegisters, w.name(), strings.Join(w.parameters(), ", "), body), nil
}

// eachTile begins the loop over an instance's tiles, and returns the tile index and the text that
// ends the loop. An instance begins with the tile of its own index; if there are more tiles than
// instances, it advances by their number.
func (w *writer) eachTile() (tile value, end string) {
	instances := w.instances()
	hoist := w.hoist()
	id := w.set("i32", nil, "tt.get_program_id x : i32")
	if instances == w.tiles() {
		hoist()
		return id, ""
	}
	tiles, step := w.constant("i32", float64(w.tiles())), w.constant("i32", float64(instances))
	hoist()
	w.line("scf.for %%tile = %s to %s step %s : i32 {", id.name, tiles.name, step.name)
	return value{name: "%tile", elem: "i32"}, "    }\n"
}

// hoist places code before the loop over tiles, until done is called.
func (w *writer) hoist() (done func()) {
	out := w.out
	w.out = &w.before
	return func() { w.out = out }
}

// once returns the loop-invariant value with the given key, computed once before the loop over
// tiles.
func (w *writer) once(key string, write func() value) value {
	v, ok := w.hoisted[key]
	if !ok {
		done := w.hoist()
		v = write()
		done()
		w.hoisted[key] = v
	}
	return v
}

// wholeVector is the maximum number of bytes of a vector load or store. Tensors are aligned to it.
const wholeVector = 16

// parameters returns the function's parameters: the inputs and outputs of the program. A Triton
// thread stores wholeVector bytes of adjacent elements of each output, so outputs of different
// types would have different layouts, and values would be computed once for each layout. To make
// the layouts equal, the declared alignment of every tensor is limited to the number of elements of
// the widest type that one store writes.
func (w *writer) parameters() (list []string) {
	most := 1 // bytes of the widest element that is stored
	for _, o := range w.p.Outputs {
		if t := w.p.TypeOf(o.Value); t.Size() > int64(w.rows) {
			most = max(most, bytesOf[w.memory(o.Name, t)])
		}
	}
	add := func(name, stored string) {
		multiple := wholeVector / most * min(bytesOf[stored], most) // alignment in bytes
		list = append(list, fmt.Sprintf("%s: !tt.ptr<%s> {tt.divisibility = %d : i32}",
			name, stored, multiple))
	}
	for i, in := range w.p.Inputs {
		add(fmt.Sprintf("%%in%d", i), w.memory(in.Name, in.Type))
	}
	for i, o := range w.p.Outputs {
		add(fmt.Sprintf("%%out%d", i), w.memory(o.Name, w.p.TypeOf(o.Value)))
	}
	return list
}

// bytesOf maps element types to their sizes in memory.
var bytesOf = map[string]int{"f32": 4, "i32": 4, "bf16": 2, "i8": 1}

// memory returns the type in which the elements of an input or output are stored in memory.
func (w *writer) memory(name string, t program.Type) string {
	switch stored, ok := w.stored[name]; {
	case t.DType == program.Bool:
		return "i8"
	case t.DType == program.Float && ok:
		return string(stored)
	}
	return elem(t.DType)
}

func (w *writer) load(pointer string, t program.Type, stored string, shared bool) parts {
	l, ok := w.layout(t)
	if shared {
		l.Layout, ok = passes.Layout{Row: t.Shape[1:]}, true
	}
	if !ok && t.Size() != 1 {
		panic(w.refuse("an input of type " + t.String() + " does not have elements in every row"))
	}
	if !ok {
		return parts{w.once("input "+pointer, func() value {
			return w.loaded(w.set(stored, nil, "tt.load %s : !tt.ptr<%s>", pointer, stored))
		})}
	}
	return w.eachPart(l, func() value {
		rows := w.tile
		if shared {
			rows = 1
		}
		address, there := w.address(pointer, stored, l, rows, shared)
		args := []value{address}
		if there.name != "" {
			args = append(args, there, w.broadcastTo(w.constant(stored, 0), address.dims))
		}
		v := w.loaded(w.set(stored, address.dims, "tt.load %s : %s", names(args), address.typ()))
		if shared {
			return v
		}
		return w.reshapeTo(v, w.dims(l))
	})
}

// loaded converts a value from its type in memory to the type in which kernels compute.
func (w *writer) loaded(v value) value {
	switch v.elem {
	case "bf16":
		v = w.cast("arith.extf", v, "f32")
		v.inBFloat16 = true
	case "i8":
		v = w.compare("ne", v, w.broadcastTo(w.constant("i8", 0), v.dims))
	}
	return v
}

// eachPart calls write for each part of a row and returns the results.
func (w *writer) eachPart(l layout, write func() value) (list parts) {
	for w.part = range w.pieces(l) {
		list = append(list, write())
	}
	return list
}

// store writes the current part of a tile to memory, if the tile has that part.
func (w *writer) store(pointer string, x parts, t program.Type, stored string) {
	l, ok := w.layout(t)
	if !ok {
		panic(w.refuse("an output of type " + t.String() + " does not have elements in every row"))
	}
	if w.part >= len(w.pieces(l)) {
		return
	}
	address, there := w.address(pointer, stored, l, w.tile, false)
	v := w.broadcastTo(x.of(w.part), w.dims(l))
	if stored == "i8" { // of integers from −128 to 127, or conditions
		op := map[string]string{"f32": "arith.fptosi", "i1": "arith.extui"}[v.elem]
		v = w.cast(op, v, "i8")
	}
	v = w.reshapeTo(v, address.dims)
	if stored == "bf16" {
		v = w.cast("arith.truncf", v, "bf16")
	}
	args := []value{address, v}
	if there.name != "" {
		args = append(args, there)
	}
	w.line("tt.store %s : %s", names(args), address.typ())
}

// dims returns the axes of a tile. The first axis is that of the rows if a tile has several.
func (w *writer) dims(l layout) []int {
	row := slices.Clone(l.Row) // of a part, padded to a power of two; the padding is undefined
	if len(row) > 0 {
		row[l.first()] = w.piece(l).padded
	}
	return w.tileDims(w.tile, row...)
}

func (w *writer) tileDims(rows int, row ...int) []int {
	switch {
	case w.tile > 1:
		return append([]int{rows}, row...)
	case passes.Elements(row) == 1:
		return nil // a scalar
	}
	return row
}

// axis returns the axis of a tile that corresponds to axis i of a tensor.
func (w *writer) axis(l layout, i int) int { return l.Axis(i) - 1 + len(w.tileDims(1, 2)) - 1 }

// address returns the addresses of the elements of a tile, rows × elements, and a mask of the
// elements that are in the tensor. The mask is the zero value if all are. Shared elements are at
// the start of the tensor.
func (w *writer) address(
	pointer, stored string, l layout, rows int, shared bool,
) (address, there value) {
	piece, inner := w.piece(l), l.inner()
	dims := w.tileDims(rows, piece.padded*inner)
	kind := "!tt.ptr<" + stored + ">"
	first := value{name: pointer, elem: kind}
	if !shared {
		first = w.addTo(first, w.start(l))
	}
	if piece.start > 0 {
		first = w.addTo(first, w.constant("i32", float64(piece.start*inner)))
	}
	if dims == nil {
		return first, value{}
	}
	address = w.addTo(w.broadcastTo(first, dims), w.offset(l.Size(), dims))
	if piece.size < piece.padded {
		size := piece.size * inner
		there = w.once(fmt.Sprint("inside ", size, dims), func() value {
			return w.below(w.column(dims), size)
		})
	}
	return address, there
}

func (w *writer) addTo(pointer, offset value) value {
	args := []value{pointer, offset}
	return w.set(pointer.elem, pointer.dims, "tt.addptr %s : %s", names(args), types(args))
}

// start returns the offset of the tile's first row in the tensor, in elements. It has 64 bits,
// because tensors may have more than 2³² elements.
func (w *writer) start(l layout) value {
	if v, ok := w.starts[l.Size()]; ok {
		return v
	}
	first := w.cast("arith.extsi", w.first, "i64")
	v := w.apply("arith.muli", first, w.constant("i64", float64(l.Size())))
	w.starts[l.Size()] = v
	return v
}

// offset returns the element offsets of a tile, rows × elements, for rows of the given length.
func (w *writer) offset(length int, dims []int) value {
	return w.once(fmt.Sprint("offset ", length, dims), func() value {
		if len(dims) == 1 || dims[0] == 1 {
			return w.column(dims)
		}
		row := w.countTo(dims[0])
		row = w.apply("arith.muli", row, w.number(row, float64(length)))
		row = w.broadcastTo(w.reshapeTo(row, []int{dims[0], 1}), dims)
		return w.apply("arith.addi", row, w.column(dims))
	})
}

func (w *writer) countTo(n int) value {
	return w.set("i32", []int{n},
		"tt.make_range {end = %d : i32, start = 0 : i32} : tensor<%dxi32>", n, n)
}

// column returns, for the axes of a tile, rows × elements, the index of each element in its row.
func (w *writer) column(dims []int) value {
	if len(dims) == 1 {
		return w.countTo(dims[0])
	}
	return w.broadcastTo(w.reshapeTo(w.countTo(dims[1]), []int{1, dims[1]}), dims)
}

func (w *writer) below(x value, n int) value {
	return w.compare("slt", x, w.number(x, float64(n)))
}

// compare compares floats or integers.
func (w *writer) compare(predicate string, x, y value) value {
	op := "arith.cmpi"
	if x.elem == "f32" {
		op = "arith.cmpf"
	}
	return w.set("i1", x.dims, "%s %s, %s, %s : %s", op, predicate, x.name, y.name, x.typ())
}

type layout struct{ passes.Layout }

// layout divides the axes of a type into those that count rows and those within a row. ok is false
// if some rows would have no elements, for example if a scalar is divided into several rows.
func (w *writer) layout(t program.Type) (l layout, ok bool) {
	l.Layout, ok = passes.LayoutOf(t, w.rows)
	if !ok || !isPadded(l.Layout) {
		return layout{}, false
	}
	return l, true
}

// isPadded reports whether padding one axis is enough for a row to fill a tile, that is, whether
// all other axes are powers of two.
func isPadded(l passes.Layout) bool {
	for _, n := range l.Row[min(len(l.Row), layout{l}.first()+1):] {
		if n&(n-1) != 0 {
			return false
		}
	}
	return true
}

// first returns the axis of the row that is divided into parts and padded to powers of two. It is
// the first that is longer than 1.
func (l layout) first() int {
	return max(0, slices.IndexFunc(l.Row, func(n int) bool { return n > 1 }))
}

// inner returns the number of elements of a row for each index of the padded axis.
func (l layout) inner() int {
	if len(l.Row) == 0 {
		return 1
	}
	return l.Size() / l.Row[l.first()]
}

func (l layout) padded() int { return nextPowerOfTwo(l.Size()) }

func nextPowerOfTwo(n int) int { return 1 << bits.Len(uint(n-1)) }
