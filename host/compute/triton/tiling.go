package triton

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

// A tiling says how rows are divided among the instances of a kernel and the threads of an instance.
type tiling struct {
	tile  int // rows that an instance has at once
	parts int // in which a row is divided at most
	warps int // of an instance
}

// Sizes of tiles.
const (
	leastDot     = 16 // elements of each axis of a matrix product
	maxParts     = 3  // of a row
	lanes        = 32 // threads of a warp
	largestWarps = 16 // 32 threads of each have maxRegisters

	// maxRegisters are those of a thread: the compiler is told so, and a multiprocessor has room for 16 warps.
	maxRegisters = 128
)

// residentWarps are those of all instances: about what a GPU of 132 multiprocessors has at once. Tests have fewer.
var residentWarps = 4096

// laneElements is how many elements of a row a thread has at most, by the number of tensors that are read and written, in halves; the
// last stands for more, too. They are measured: with them the kernels of shipped quantizers at the widths of the presets spill few registers
// if any (docs/gpu-kernels.md).
var laneElements = []int{56, 56, 56, 56, 56, 56, 56, 40, 36, 24, 16}

// What a tile costs besides its elements, in elements of each thread: for addresses, sums along a row, and what goes from warp to
// warp.
const (
	tileCost    = 4
	partCost    = 1
	paddingCost = 2 // if there is any
	warpCost    = 4 // with several warps
)

// setTile chooses the tiling for which a thread has the least to do for each element, of those for which it has the registers. It
// refuses rows of more than the largest number of elements.
func (w *writer) setTile(largest int) error {
	row := layout{}
	for id := range w.p.NumValues() {
		if l, ok := w.layout(w.p.TypeOf(program.ID(id))); ok && l.padded() > row.padded() {
			row = l
		}
	}
	if row.padded() > largest {
		return w.refuse(fmt.Sprintf("a row has more than %d elements", largest))
	}
	limit := float64(laneElements[min(w.tensors(row), len(laneElements)-1)])
	var best tiling
	least := math.Inf(1)
	for w.parts = 1; w.parts <= maxParts; w.parts++ {
		for w.warps = 1; w.warps <= largestWarps; w.warps *= 2 {
			for w.tile = 1; w.rows%w.tile == 0 && w.tile*row.Size() <= largest; w.tile *= 2 {
				elements, fits := w.computed(row)
				list := w.pieces(row)
				cost := elements + tileCost + float64(partCost*len(list))
				if last := list[len(list)-1]; last.size < last.padded {
					cost += paddingCost
				}
				if w.warps > 1 {
					cost += warpCost
				}
				cost *= float64(w.warps) / float64(w.tile) // for each row
				if elements > limit {
					cost *= 1e6 * elements // only if there is no other
				}
				if fits && cost < least {
					best, least = w.tiling, cost
				}
			}
		}
	}
	if best.tile == 0 { // a rotation refuses it
		best = tiling{tile: 1, parts: 1, warps: 1}
	}
	w.tiling = best
	return nil
}

// tensors is the number of those that are read and written and have as many elements as rows of this layout, in halves. Codes of four
// bits count like others, though two are in a byte; codes of eight do not, because they are the last bits of what is rounded. If any
// tensor is read in float32, or a row that all share is read, that needs registers for half a tensor more. Of inputs that only a
// rotation's operand is computed from, there is but that operand when the rotation begins.
func (w *writer) tensors(row layout) int {
	n, more, before := 0, 0, 0
	has := func(t program.Type) bool {
		l, ok := w.layout(t)
		return ok && l.Size() == row.Size()
	}
	kept := w.readAfterRotation(has)
	for i, in := range w.p.Inputs {
		switch {
		case w.isShared(program.ID(i)):
			more = 1
		case has(in.Type):
			if !kept[i] {
				before = 2
			} else {
				n += 2
			}
			if w.memory(in.Name, in.Type) == string(Float32) {
				more = 1
			}
		}
	}
	for _, o := range w.p.Outputs {
		if l, ok := w.layout(w.p.TypeOf(o.Value)); ok && l.Size()*2 >= row.Size() && (l.Size() < row.Size() || w.stored[o.Name] != Int8) {
			n += 2
		}
	}
	// Where something is rotated, a number for each row is computed from that, and rotated again, what is
	// rotated stays in registers up to the second rotation.
	rotations, reductions := 0, 0
	for _, node := range w.p.Nodes {
		info, _ := node.Op.Info()
		if node.Op == program.OpHadamard {
			rotations++
		} else if info.Class == program.ClassReduce {
			reductions++
		}
	}
	if rotations > 1 && reductions > 0 {
		more += 3
	}
	return n + before + more
}

// readAfterRotation says of each input whether it, or a tensor computed from it, meets what was rotated. Without a rotation all do.
func (w *writer) readAfterRotation(has func(program.Type) bool) []bool {
	inputs, rotations := len(w.p.Inputs), 0
	kept, rotated := make([]bool, inputs), make([]bool, w.p.NumValues())
	from := make([][]bool, w.p.NumValues()) // the inputs from which something is computed
	for i := range from {
		from[i] = make([]bool, inputs)
		if i < inputs {
			from[i][i] = true
		}
	}
	for k, n := range w.p.Nodes {
		id := inputs + k
		rotated[id] = slices.ContainsFunc(n.Args, func(a program.ID) bool { return rotated[a] })
		for _, a := range n.Args {
			if rotated[a] || !has(w.p.TypeOf(a)) {
				continue
			}
			readers := from[id]
			if rotated[id] {
				readers = kept
			}
			for i, yes := range from[a] {
				readers[i] = readers[i] || yes
			}
		}
		if n.Op == program.OpHadamard {
			rotated[id] = true
			rotations++
		}
	}
	if rotations == 0 {
		return slices.Repeat([]bool{true}, inputs)
	}
	return kept
}

// computed is the number of elements that a thread computes, of all parts: a product has at least so many in each warp. fits is false
// if a part is too small for a rotation.
func (w *writer) computed(row layout) (elements float64, fits bool) {
	for _, p := range w.pieces(row) {
		size, least := w.tile*p.padded*row.inner(), 0
		for _, n := range w.p.Nodes {
			if n.Op == program.OpHadamard {
				r := rotationOf(n.Attr.Block)
				if !r.fits(size) {
					return 0, false
				}
				least = max(least, leastDot*r.inner())
			}
		}
		elements += max(float64(size)/float64(w.warps*lanes), float64(least)/lanes)
	}
	return elements, true
}

// tiles is how many there are.
func (w *writer) tiles() int { return w.rows / w.tile }

// instances is the number of instances of the kernel: as many as the GPU has at once, if each then has the same number of tiles.
func (w *writer) instances() int {
	n := w.tiles()
	for n > residentWarps/w.warps && n%2 == 0 {
		n /= 2
	}
	return n
}

// A piece is a part of the axis in which a row is divided.
type piece struct{ start, size, padded int }

// pieces divides a row: its axis that is no power of two into powers of two, the largest first, of which the last may be padded.
// All layouts of the rows of a program that have as many elements, or as many groups of them, are divided in the same way.
func (w *writer) pieces(l layout) []piece {
	if len(l.Row) == 0 {
		return []piece{{0, 1, 1}}
	}
	n, start := l.Row[l.first()], 0
	var list []piece
	for n > 0 {
		size := min(n, 1<<(bits.Len(uint(n))-1))
		if len(list) == w.parts-1 {
			size = n
		}
		list = append(list, piece{start, size, power(size)})
		start, n = start+size, n-size
	}
	return list
}

// piece is the one that is being written.
func (w *writer) piece(l layout) piece {
	list := w.pieces(l)
	return list[min(w.part, len(list)-1)]
}
