package triton

import (
	"fmt"
	"math/bits"

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
	leastDot      = 16   // elements of each axis of a matrix product
	mostParts     = 3    // of a row
	mostPadding   = 1.03 // what is padded has at most so many times the elements, with fewer parts
	lanes         = 32   // threads of a warp
	laneElements  = 40   // of a row that a thread has at most
	largestWarps  = 16   // 32 threads of each have 128 registers
	residentWarps = 4096 // of all instances: about what a GPU of 132 multiprocessors has at once
)

// setTile chooses the tiling. It refuses rows of more than the largest number of elements.
func (w *writer) setTile(largest int) error {
	row := layout{}
	var rotations []rotation
	for id := range w.p.NumValues() {
		if l, ok := w.layout(w.p.TypeOf(program.ID(id))); ok && l.padded() > row.padded() {
			row = l
		}
		if n := w.p.Node(program.ID(id)); n != nil && n.Op == program.OpHadamard {
			rotations = append(rotations, rotationOf(n.Attr.Block))
		}
	}
	if row.padded() > largest {
		return w.refuse(fmt.Sprintf("a row has more than %d elements", largest))
	}
	most := 1 << bits.TrailingZeros(uint(w.rows)) // tiles have the same number of rows
	w.parts = 1
	for w.parts < mostParts && float64(w.padded(row)) > mostPadding*float64(row.Size()) {
		w.parts++
	}
	for w.tile = 1; !w.fit(rotations, row) && (w.tile < most || w.parts > 1); {
		if w.tile *= 2; w.tile > most {
			w.tile, w.parts = 1, w.parts-1
		}
	}
	size := w.padded(row)
	for w.tile < most && 2*w.tile*size <= lanes*laneElements {
		w.tile *= 2
	}
	for w.warps = 1; w.warps < largestWarps && w.tile*size > w.warps*lanes*laneElements; {
		w.warps *= 2
	}
	return nil
}

// padded is the number of elements of a row in a tile.
func (w *writer) padded(l layout) (n int) {
	for _, p := range w.pieces(l) {
		n += p.padded * l.inner()
	}
	return n
}

// fit reports whether all parts of a row are large enough for the rotations.
func (w *writer) fit(rotations []rotation, row layout) bool {
	for _, p := range w.pieces(row) {
		for _, r := range rotations {
			if !r.fits(w.tile * p.padded * row.inner()) {
				return false
			}
		}
	}
	return true
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
