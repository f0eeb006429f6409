package triton

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/compute/pass/byrow"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// writer writes one kernel.
type writer struct {
	p      *program.Program
	rows   int // of the whole tensors
	tile   int // rows of an instance
	widest int // elements of the longest row in a tile
	stored map[string]Storage

	text     strings.Builder
	named    int
	first    value                     // the first row of the instance
	starts   map[int]value             // of the instance's first row in memory, by its number of elements
	offsets  map[int]value             // of the elements of a tile from there
	matrices map[int]value             // the signs of rotations, by their size
	current  func(reason string) error // refuses the node that is being written
}

// write returns the text of the kernel.
func (w *writer) write() (text string, err error) {
	defer func() {
		if r := recover(); r != nil {
			refusal, ok := r.(*Refusal)
			if !ok {
				panic(r)
			}
			err = refusal
		}
	}()
	w.starts, w.offsets, w.matrices = map[int]value{}, map[int]value{}, map[int]value{}
	id := w.set("i32", nil, "tt.get_program_id x : i32")
	w.first = w.apply("arith.muli", id, w.constant("i32", float64(w.tile)))
	inputs := make([]value, len(w.p.Inputs))
	for i, in := range w.p.Inputs {
		inputs[i] = w.load(fmt.Sprintf("%%in%d", i), in.Type, w.memory(in.Name, in.Type), w.isShared(program.ID(i)))
	}
	values := transform.Interpret(w.p, inputs, w.node)
	for i, o := range w.p.Outputs {
		if w.isShared(o.Value) {
			panic(w.refuse("an output is what all rows share"))
		}
		w.store(fmt.Sprintf("%%out%d", i), values[o.Value], w.p.TypeOf(o.Value), w.memory(o.Name, w.p.TypeOf(o.Value)))
	}
	return w.module(w.parameters()), nil
}

// module is the text of the kernel, a function with these parameters.
func (w *writer) module(parameters []string) string {
	return fmt.Sprintf("module {\n  tt.func public @%s(%s) attributes {noinline = false} {\n%s    tt.return\n  }\n}\n",
		w.name(), strings.Join(parameters, ", "), w.text.String())
}

// parameter is a pointer to memory that begins at a multiple of 16 bytes.
func parameter(name, stored string) string {
	return fmt.Sprintf("%s: !tt.ptr<%s> {tt.divisibility = 16 : i32}", name, stored)
}

// parameters are the inputs and outputs of the program.
func (w *writer) parameters() (list []string) {
	for i, in := range w.p.Inputs {
		list = append(list, parameter(fmt.Sprintf("%%in%d", i), w.memory(in.Name, in.Type)))
	}
	for i, o := range w.p.Outputs {
		list = append(list, parameter(fmt.Sprintf("%%out%d", i), w.memory(o.Name, w.p.TypeOf(o.Value))))
	}
	return list
}

// memory is the type of the elements of an input or output in memory.
func (w *writer) memory(name string, t program.Type) string {
	switch stored, ok := w.stored[name]; {
	case t.DType == program.Bool:
		return "i8"
	case t.DType == program.Float && ok:
		return string(stored)
	}
	return elem(t.DType)
}

// load reads a tile, a scalar, or an input that all rows share.
func (w *writer) load(pointer string, t program.Type, stored string, shared bool) value {
	l, ok := w.layout(t)
	ok = ok && !shared
	var v value
	switch {
	case shared:
		v = w.loadShared(pointer, t, stored)
	case ok:
		address, there := w.address(pointer, stored, l)
		args := []value{address}
		if there.name != "" {
			args = append(args, there, w.broadcastTo(w.zero(stored), address.dims))
		}
		v = w.set(stored, address.dims, "tt.load %s : %s", names(args), address.typ())
	case t.Size() == 1:
		v = w.set(stored, nil, "tt.load %s : !tt.ptr<%s>", pointer, stored)
	default:
		panic(w.refuse("an input of type " + t.String() + " has no part in every row"))
	}
	switch stored {
	case "bf16":
		v = w.cast("arith.extf", v, "f32")
		v.inBFloat16 = true
	case "i8":
		v = w.compare("arith.cmpi", "ne", v, w.broadcastTo(w.constant("i8", 0), v.dims))
	}
	if !ok {
		return v
	}
	return w.reshapeTo(v, w.dims(l))
}

// loadShared reads a vector that is the same for all rows, as a tile of one row.
func (w *writer) loadShared(pointer string, t program.Type, stored string) value {
	l := layout{byrow.Layout{Row: t.Shape[1:]}}
	dims := []int{1, l.padded()}
	kind := "!tt.ptr<" + stored + ">"
	base := w.set(kind, dims, "tt.splat %s : %s -> %s", pointer, kind, typeText(kind, dims))
	column := w.column(dims)
	address := w.set(kind, dims, "tt.addptr %s, %s : %s, %s", base.name, column.name, base.typ(), column.typ())
	args := []value{address}
	if l.Size() < l.padded() {
		args = append(args, w.insideMask(l, dims), w.broadcastTo(w.zero(stored), dims))
	}
	return w.set(stored, dims, "tt.load %s : %s", names(args), address.typ())
}

// store writes a tile.
func (w *writer) store(pointer string, v value, t program.Type, stored string) {
	l, ok := w.layout(t)
	if !ok {
		panic(w.refuse("an output of type " + t.String() + " has no part in every row"))
	}
	address, there := w.address(pointer, stored, l)
	v = w.reshapeTo(w.broadcastTo(v, w.dims(l)), address.dims)
	switch stored {
	case "bf16":
		v = w.cast("arith.truncf", v, "bf16")
	case "i8":
		op := "arith.extui"
		if v.elem == "f32" {
			op = "arith.fptosi"
		}
		v = w.cast(op, v, "i8")
	}
	args := []value{address, v}
	if there.name != "" {
		args = append(args, there)
	}
	w.line("tt.store %s : %s", names(args), address.typ())
}

// dims are the axes of a tile.
func (w *writer) dims(l layout) []int { return append([]int{w.tile}, l.dims()...) }

// zero is a scalar of a type in memory.
func (w *writer) zero(stored string) value {
	if stored == string(BFloat16) {
		return w.set(stored, nil, "arith.constant 0.0 : bf16")
	}
	return w.constant(stored, 0)
}

// address returns the addresses of the elements of a tile, rows × elements, and a mask of those
// that are in the tensor; the mask is the zero value if all are.
func (w *writer) address(pointer, stored string, l layout) (address, there value) {
	dims := []int{w.tile, l.padded()}
	offset := w.offset(l)
	kind := "!tt.ptr<" + stored + ">"
	start := w.start(l)
	first := w.set(kind, nil, "tt.addptr %s, %s : %s, %s", pointer, start.name, kind, start.typ())
	base := w.set(kind, dims, "tt.splat %s : %s -> %s", first.name, kind, typeText(kind, dims))
	address = w.set(kind, dims, "tt.addptr %s, %s : %s, %s", base.name, offset.name, base.typ(), offset.typ())
	if l.Size() < l.padded() {
		there = w.insideMask(l, dims)
	}
	return address, there
}

// start is where the first row of the instance is, counted from the tensor's first element: in 64 bits, because tensors
// may have more elements than 32 bits count.
func (w *writer) start(l layout) value {
	if v, ok := w.starts[l.Size()]; ok {
		return v
	}
	v := w.apply("arith.muli", w.cast("arith.extsi", w.first, "i64"), w.constant("i64", float64(l.Size())))
	w.starts[l.Size()] = v
	return v
}

// offset is where the elements of a tile are, counted from the first.
func (w *writer) offset(l layout) value {
	if v, ok := w.offsets[l.Size()]; ok {
		return v
	}
	dims := []int{w.tile, l.padded()}
	row := w.apply("arith.muli", w.countTo(w.tile), w.broadcastTo(w.constant("i32", float64(l.Size())), []int{w.tile}))
	v := w.apply("arith.addi", w.broadcastTo(w.reshapeTo(row, []int{w.tile, 1}), dims), w.column(dims))
	w.offsets[l.Size()] = v
	return v
}

// countTo is 0, 1, 2, …
func (w *writer) countTo(n int) value {
	return w.set("i32", []int{n}, "tt.make_range {end = %d : i32, start = 0 : i32} : %s", n, typeText("i32", []int{n}))
}

// column is the number of each element in its row, for rows × elements.
func (w *writer) column(dims []int) value {
	return w.broadcastTo(w.reshapeTo(w.countTo(dims[1]), []int{1, dims[1]}), dims)
}

// insideMask is the mask of the elements of padded rows that are in the tensor, for rows × elements.
func (w *writer) insideMask(l layout, dims []int) value {
	return w.compare("arith.cmpi", "slt", w.column(dims), w.broadcastTo(w.constant("i32", float64(l.Size())), dims))
}

// compare adds a comparison.
func (w *writer) compare(op, predicate string, x, y value) value {
	return w.set("i1", x.dims, "%s %s, %s, %s : %s", op, predicate, x.name, y.name, x.typ())
}

// A layout says which elements of a tensor belong to which row.
type layout struct{ byrow.Layout }

// layout divides a type's axes into those that count rows and those within a row. ok is false for what has no
// part in every row, such as a scalar where there are several rows.
func (w *writer) layout(t program.Type) (l layout, ok bool) {
	l.Layout, ok = byrow.Of(t, w.rows)
	if !ok || !isPadded(l.Layout) {
		return layout{}, false
	}
	return l, true
}

// isPadded reports whether a row fills a tile when one of its axes is padded: the others must be powers of two.
func isPadded(l byrow.Layout) bool {
	for _, n := range l.Row[min(len(l.Row), layout{l}.first()+1):] {
		if n&(n-1) != 0 {
			return false
		}
	}
	return true
}

// first is the axis in the row that is padded to a power of two: the first that is longer than 1.
func (l layout) first() int {
	return max(0, slices.IndexFunc(l.Row, func(n int) bool { return n > 1 }))
}

// dims are the axes in a row as a tile has them: powers of two. The padding is at the end of the row and has any
// value.
func (l layout) dims() []int {
	dims := slices.Clone(l.Row)
	if len(dims) > 0 {
		i := l.first()
		dims[i] = power(dims[i])
	}
	return dims
}

// padded is the number of elements in a row of a tile.
func (l layout) padded() int { return power(l.Size()) }

// power is the least power of two that is not below n.
func power(n int) int { return 1 << bits.Len(uint(n-1)) }
