package triton

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/sdk/program"
)

// A tiling divides rows among the instances of a kernel and the threads of an instance.
type tiling struct {
	tile  int // rows that an instance computes at once
	parts int // maximum number of parts of a row
	warps int // of an instance
}

// Sizes of tiles.
const (
	leastDot     = 16 // elements of each axis of a matrix product
	maxParts     = 3  // of a row
	lanes        = 32 // threads of a warp
	largestWarps = 16 // with maxRegisters for each of 32 threads

	// maxRegisters is the limit on the registers of a thread, which is passed to the compiler. It
	// allows 16 warps on a multiprocessor.
	maxRegisters = 128
)

// residentWarps is the target for the total number of warps, about as many as a GPU with 132
// multiprocessors holds at once. Tests set a smaller number.
var residentWarps = 4096

// laneElements is the maximum number of row elements per thread, indexed by twice the number of
// tensors read and written; the last entry also applies to more. The values were found by
// measurement: with them, the kernels of the included quantizers at the presets' widths spill few
// or no registers (docs/lab/gpu.md).
var laneElements = []int{56, 56, 56, 56, 56, 56, 56, 40, 36, 24, 16}

// Overheads of a tile, in elements per thread, for addresses, sums along a row, and communication
// between warps.
const (
	tileCost    = 4
	partCost    = 1
	paddingCost = 2 // if there is any
	warpCost    = 4 // with several warps
)

// setTile chooses, among the tilings that fit in the registers, the one with the least work per
// thread and element. It refuses rows of more than maxRow elements.
func (w *writer) setTile(maxRow int) error {
	row := layout{}
	for id := range w.p.NumValues() {
		if l, ok := w.layout(w.p.TypeOf(program.ID(id))); ok && l.padded() > row.padded() {
			row = l
		}
	}
	if row.padded() > maxRow {
		return w.refuse(fmt.Sprintf("the rows have more than %d elements", maxRow))
	}
	limit := float64(laneElements[min(w.tensors(row), len(laneElements)-1)])
	var best tiling
	least := math.Inf(1)
	for w.parts = 1; w.parts <= maxParts; w.parts++ {
		for w.warps = 1; w.warps <= largestWarps; w.warps *= 2 {
			for w.tile = 1; w.rows%w.tile == 0 && w.tile*row.Size() <= maxRow; w.tile *= 2 {
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
					cost *= 1e6 * elements // a last resort
				}
				if fits && cost < least {
					best, least = w.tiling, cost
				}
			}
		}
	}
	if best.tile == 0 { // no tiling suits the rotations
		best = tiling{tile: 1, parts: 1, warps: 1}
	}
	w.tiling = best
	return nil
}

// tensors returns twice the number of tensors read and written whose rows have as many elements as
// those of the given layout. 4-bit codes count like others, though two share a byte; 8-bit codes do
// not count, because they are the low bits of the rounded values. A float32 input or a shared row
// needs registers for half a tensor more. Inputs used only to compute a rotation's operand count as
// that one operand, because they are dead when the rotation begins.
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
			if w.memory(in.Name, in.Type) == string(passes.Float32) {
				more = 1
			}
		}
	}
	for _, o := range w.p.Outputs {
		l, ok := w.layout(w.p.TypeOf(o.Value))
		low := l.Size() == row.Size() && w.stored[o.Name] == passes.Int8
		if ok && l.Size()*2 >= row.Size() && !low {
			n += 2
		}
	}
	// A rotated value that is reduced to a number per row and then rotated again stays in registers
	// until the second rotation.
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

// readAfterRotation reports for each input whether it, or a tensor computed from it, is combined
// with a rotated value. Without a rotation it is true for all inputs.
func (w *writer) readAfterRotation(has func(program.Type) bool) []bool {
	inputs, rotations := len(w.p.Inputs), 0
	kept, rotated := make([]bool, inputs), make([]bool, w.p.NumValues())
	from := make([][]bool, w.p.NumValues()) // the inputs that each value depends on
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

// computed returns the number of elements that a thread computes in all parts. It includes a
// product's minimum size in each warp. fits is false if a part is too small for a rotation.
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

func (w *writer) tiles() int { return w.rows / w.tile }

// instances returns the number of instances of the kernel: as many as are resident on the GPU at
// once, if that divides the number of tiles.
func (w *writer) instances() int {
	n := w.tiles()
	for n > residentWarps/w.warps && n%2 == 0 {
		n /= 2
	}
	return n
}

type piece struct{ start, size, padded int }

// pieces divides the first long axis of a row into powers of two, the largest first; the last piece
// may be padded. All layouts of a program whose rows have as many elements, or as many groups of
// elements, are divided in the same way.
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
		list = append(list, piece{start, size, nextPowerOfTwo(size)})
		start, n = start+size, n-size
	}
	return list
}

// piece returns the current piece.
func (w *writer) piece(l layout) piece {
	list := w.pieces(l)
	return list[min(w.part, len(list)-1)]
}
