package matmul

import (
	"runtime"
	"sync"
	"unsafe"
)

// A blocking holds the block sizes of a product.
type blocking struct {
	// block is the number of words that a kernel multiplies at a time, so that this part of a right
	// panel stays in the L1 cache.
	block int
	// rows is the maximum number of rows of the left operand in a task. left is the number of their
	// words that are packed at a time, at least one block, so that they stay in the L2 cache.
	rows, left int
	// right is the number of words of the right operand that are packed at a time, for all tasks.
	right int
	// alone is the number of multiplications above which other goroutines help; task is the number
	// that makes it worthwhile to start a task.
	alone, task int
}

// The blockings for vector kernels and for AMX kernels, which are thirteen times as fast.
var (
	blocksForVectors = blocking{block: 256, rows: 192, right: 1 << 20, alone: 1 << 16, task: 1 << 18}
	blocksForTiles   = blocking{
		block: 256, rows: 512, left: 1 << 18, right: 1 << 21, alone: 1 << 25, task: 1 << 22,
	}
)

// rightColumns is the largest number of columns of a right operand that are packed at once.
const rightColumns = 4096

// A call holds the arguments of a call of [Product.Run].
type call struct {
	*Product
	out                         Results
	leftElements, rightElements Elements
	scales                      Scales
	parallel                    func(n int, f func(i int))
	alone                       bool // on one goroutine
}

// A run is the state of one call. Its memory is reused by later calls.
type run struct {
	call
	words int      // along the contracted dimension
	block int      // words that a kernel multiplies at a time
	sums  []uint32 // between parts: in the output, or in ownSums if that is too small

	part        part
	tasks       tasks
	packed      []uint32
	corrections []int32
	ownSums     memory
	ownPacked   memory

	// The task functions, created once, so that a call allocates nothing.
	packTask, multiplyTask func(i int)
}

// memory is a buffer that is reused as long as it is large enough.
type memory struct{ words []uint32 }

// get returns n words, aligned to 64 bytes, with arbitrary contents.
func (m *memory) get(n int) []uint32 {
	const line = 16
	if len(m.words) < n+line {
		m.words = make([]uint32, n+n/8+line)
	}
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(m.words)))/4) & (line - 1)
	return m.words[skip : skip+n : skip+n]
}

// A part is the part of the right operand that is packed at once.
type part struct {
	batch, batches  int
	column, columns int
	word, words     int
	first, last     bool // whether the part has the first and the last words of the sums
}

// tasks describes how the work on a part is divided into tasks, for each product of a batch.
type tasks struct {
	rows, rowTasks int // rows of the left operand in a task; the most, if tasks shrink
	// If share is not 0, each task takes 1/share of the remaining rows, but no fewer than least.
	share, least        int
	panels, columnTasks int // panels of the right operand in a task
	// packed is the number of panels that a packing task packs in one block of words; packTasks is
	// the number of such tasks for a block.
	packed, packTasks int
}

type workspace struct {
	stage   stage
	left    memory
	partial memory // sums of a strip over some of the words
	tiles   memory
	tile    []uint32 // in whole cache lines
	sums    [32]int32
	source  source
	finish  finish
	strip   strip
}

var (
	runs       = sync.Pool{New: func() any { return newRun() }}
	workspaces = sync.Pool{New: func() any {
		w := new(workspace)
		w.tile = w.tiles.get(tileSize)
		return w
	}}
)

func newRun() *run {
	r := new(run)
	r.packTask, r.multiplyTask = r.packPart, r.multiplyPart
	return r
}

// plan chooses the block sizes.
func (r *run) plan() {
	r.words = r.format.words(r.k)
	words := max(1, r.words)
	unit := 8 // word counts are multiples of this, if large enough
	if r.format.tiled {
		unit = tileWords
	}
	// blocks of about equal size
	r.block = roundUp(divideUp(words, divideUp(words, r.format.cut.block)), unit)
	r.sums = asWords(r.out.Float32)
	if r.words > r.block && r.out.BFloat16 != nil {
		r.sums = r.ownSums.get(r.Size())
	}
}

func (r *run) multiply() {
	procs := 1
	if !r.alone {
		procs = runtime.GOMAXPROCS(0)
	}
	f := r.format
	columns := roundUp(r.n, f.columns)
	width := min(columns, roundUp(rightColumns, f.columns))
	depth := min(max(f.cut.right/width/r.block, 1)*r.block, max(r.words, 1))
	batches := 1
	if width == columns && depth >= r.words {
		batches = min(max(f.cut.right/(width*depth), 1), r.batch)
	}
	for b := 0; b < r.batch; b += batches {
		for c := 0; c < r.n; c += width {
			for w := 0; w == 0 || w < r.words; w += depth {
				r.part = part{
					batch: b, batches: min(batches, r.batch-b),
					column: c, columns: min(width, r.n-c),
					word: w, words: min(depth, r.words-w),
					first: w == 0, last: w+depth >= r.words,
				}
				r.divide(procs)
				r.parallel(r.tasks.packTasks*r.blocks(r.part.words)*r.part.batches, r.packTask)
				r.parallel(r.tasks.rowTasks*r.tasks.columnTasks*r.part.batches, r.multiplyTask)
			}
		}
	}
}

func roundUp(n, unit int) int { return divideUp(n, unit) * unit }

func divideUp(n, by int) int { return (n + by - 1) / by }

// divide sets the sizes of tasks. If there are many rows, tasks shrink towards the end, so that no
// thread waits long for the last one. Otherwise there are about four tasks for each processor,
// unless they become too small. Tasks for different columns of the same rows all pack these rows,
// which costs little if there are many columns.
func (r *run) divide(procs int) {
	f, p, t := r.format, &r.part, &r.tasks
	want := 1
	if procs > 1 {
		want = divideUp(4*procs, p.batches)
	}
	panels := divideUp(p.columns, f.columns)

	most := f.cut.rows / f.rows * f.rows
	if f.cut.left > 0 {
		// All words of the part must fit into the buffer, so that sums stay in the caches until
		// they are complete.
		most = max(min(most, f.cut.left/max(r.block, p.words)/f.rows*f.rows), f.rows)
	}
	t.rows = min(max(roundUp(divideUp(r.m, want), f.rows), 4*f.rows), most)
	t.share, t.least = 0, 0
	if procs > 1 && p.batches == 1 && r.m >= want*f.rows {
		t.share, t.rows = 2*procs, most
		t.least = roundUp(divideUp(f.cut.task, p.columns*max(p.words*f.per, 1)), f.rows)
	}
	t.rowTasks = t.countRows(r.m, f.rows)

	work := t.rows * p.columns * max(p.words*f.per, 1)
	t.columnTasks = 1
	if t.share == 0 {
		t.columnTasks = max(1, min(divideUp(want, t.rowTasks), divideUp(panels, 4), work/f.cut.task))
	}
	t.panels = divideUp(panels, t.columnTasks)
	t.columnTasks = divideUp(panels, t.panels)

	// Packing is limited by memory reads, which are fastest in long runs. So the work is first
	// divided along the contracted dimension.
	width := panels * f.columns
	parts := min(divideUp(want, max(1, r.blocks(p.words))), width*r.block/packAbove)
	t.packed = divideUp(panels, max(1, parts))
	t.packTasks = divideUp(panels, t.packed)

	r.packed = r.ownPacked.get(p.batches * width * p.words)
	if f.unsigned && p.first {
		resize(&r.corrections, p.batches*width)
		clear(r.corrections)
	}
}

// rowsOf returns the rows of task i, given the numbers of all rows and of rows in a panel.
func (t *tasks) rowsOf(i, all, panel int) (row, rows int) {
	if t.share == 0 {
		return i * t.rows, min(t.rows, all-i*t.rows)
	}
	for ; ; i-- {
		rows = min(max(roundUp(divideUp(all-row, t.share), panel), t.least), t.rows, all-row)
		if i == 0 || rows == 0 {
			return row, rows
		}
		row += rows
	}
}

func (t *tasks) countRows(all, panel int) (n int) {
	if t.share == 0 {
		return divideUp(all, t.rows)
	}
	for row, rows := t.rowsOf(0, all, panel); row+rows < all; row, rows = t.rowsOf(n, all, panel) {
		n++
	}
	return n + 1
}

func (r *run) blocks(words int) int { return divideUp(words, r.block) }

// resize changes the length of s to n; the contents are arbitrary.
func resize(s *[]int32, n int) {
	if cap(*s) < n {
		*s = make([]int32, n)
	}
	*s = (*s)[:n]
}

// packAbove is the number of words above which packing is a task of its own.
const packAbove = 1 << 13

func (r *run) packPart(i int) {
	w := workspaces.Get().(*workspace)
	each := r.tasks.packTasks * r.blocks(r.part.words)
	b, i := i/each, i%each
	word, i := i/r.tasks.packTasks*r.block, i%r.tasks.packTasks
	o := r.shared(b)
	o.pack(word, min(word+r.block, r.part.words), i*r.tasks.packed, r.tasks.packed, w)
	workspaces.Put(w)
}

func (r *run) multiplyPart(i int) {
	w := workspaces.Get().(*workspace)
	each := r.tasks.rowTasks * r.tasks.columnTasks
	b, i := i/each, i%each
	row, rows := r.tasks.rowsOf(i/r.tasks.columnTasks, r.m, r.format.rows)
	panel := i % r.tasks.columnTasks * r.tasks.panels
	o := r.shared(b)
	o.multiply(row, rows, panel, r.tasks.panels, w)
	workspaces.Put(w)
}
