package matmul

import (
	"math"
	"runtime"
	"sync"
	"unsafe"
)

// A blocking says how large the pieces are into which a product is cut. Sizes are words and rows.
type blocking struct {
	// block is how many words a kernel multiplies at a time: a panel of so many of the right
	// operand stays in the first cache.
	block int
	// rows are those of the left operand of a task, at most, and left is how many words of them are
	// packed at a time, but a block's in any case: they stay in the second cache.
	rows, left int
	// right is how many words of the right operand are packed at a time, for all tasks.
	right int
	// alone and task are numbers of products for which it is worth to use other goroutines, and to
	// start a task.
	alone, task int
}

// One is for kernels that multiply vectors, the other for those of AMX, which are thirteen times as
// fast.
var (
	cutForVectors = blocking{block: 256, rows: 192, right: 1 << 20, alone: 1 << 16, task: 1 << 18}
	cutForTiles   = blocking{block: 256, rows: 512, left: 1 << 18, right: 1 << 21, alone: 1 << 25, task: 1 << 22}
)

const (
	rightColumns = 4096    // of a right operand that are packed at a time
	wholeWords   = 1 << 18 // of a right operand that a single task packs
)

// A run is the state of one call of [Product.Run], kept for the next call.
type run struct {
	*Product
	out                         Results
	leftElements, rightElements Elements
	scales                      Scales
	parallel                    func(n int, f func(i int))
	alone                       bool // there is one goroutine

	format *format
	steps  int      // words that a kernel with headroom adds up before it widens
	offset uint8    // of the left operand
	words  int      // along all sums
	block  int      // of them, that a kernel multiplies at a time
	sums   []uint32 // between parts: the output, or if that is still needed or has no room for them, memory of our own

	part        part
	tasks       tasks
	packed      []uint32
	corrections []int32
	ownSums     memory
	ownPacked   memory

	scanned     int // chunks of the left operand
	lows, highs []int8

	// Functions of tasks, made once, so that a call allocates nothing.
	scanTask, packTask, multiplyTask, wholeTask func(i int)
}

// memory is reused where it is large enough.
type memory struct{ words []uint32 }

// get returns n words that begin at a multiple of 64 bytes. What they contain is left from before.
func (m *memory) get(n int) []uint32 {
	const line = 16
	if len(m.words) < n+line {
		m.words = make([]uint32, n+n/8+line)
	}
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(m.words)))/4) & (line - 1)
	return m.words[skip : skip+n : skip+n]
}

// A part is what is packed of the right operand at a time.
type part struct {
	batch, batches  int
	column, columns int
	word, words     int
	first, last     bool // words of the sums
}

// tasks is how the work on a part is divided, for each product of a batch.
type tasks struct {
	products            int // of a task that multiplies whole ones
	rows, rowTasks      int // rows of the left operand for a task; the most, if tasks shrink
	share, least        int // tasks that shrink take one part in so many of the rows that are left, but so many at least; or 0
	panels, columnTasks int // panels of the right operand for a task
	packed, packTasks   int // panels that a task packs, of one block of words; the tasks for a block
}

type workspace struct {
	stage       stage
	left, right memory
	partial     memory // sums of a strip over some of the words
	tiles       memory
	tile        []uint32 // in whole lines of the cache
	sums        [32]int32
	corrections []int32
	source      source
	finish      finish
	strip       strip
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
	r.scanTask, r.packTask, r.multiplyTask, r.wholeTask = r.scan, r.packPart, r.multiplyPart, r.multiplyWhole
	return r
}

// plan chooses the kernel and the size of blocks.
func (r *run) plan() {
	r.chooseFormat()
	r.words = r.format.words(r.k)
	words := max(1, r.words)
	unit := 8 // words that kernels multiply multiples of, where there are as many
	if r.format.tiled {
		unit = tileWords
	}
	r.block = roundUp(divideUp(words, divideUp(words, r.format.cut.block)), unit) // blocks of about one size
	r.sums = asWords(r.out.Float32)
	if r.words > r.block && (r.out.BFloat16 != nil || r.out.Addend != nil && r.finishes()) {
		r.sums = r.ownSums.get(r.Size())
	}
}

// chooseFormat decides which kernel multiplies. Of integers it depends on their magnitudes, where
// the fastest needs small ones: sums are exact in any case.
func (r *run) chooseFormat() {
	r.steps, r.offset = math.MaxInt32, 0
	if r.arithmetic != Int8 {
		r.format = r.tier.floats(r.arithmetic)
		return
	}
	for _, f := range r.tier.codes {
		if f.headroom > 0 && r.fits(f) {
			return
		}
		if f.headroom == 0 {
			r.format, r.steps, r.offset = f, math.MaxInt32, 0
			break
		}
	}
	if r.format.unsigned {
		r.offset = 128
	}
}

// minSteps is how many words a kernel with headroom must be able to add up; with fewer, one of
// wider words is faster.
const minSteps = 4

// fits reports whether a kernel with headroom is worth it, after a look at all numbers. Elements
// that a layout skips count as well: a range that is too wide costs time alone.
func (r *run) fits(f *format) bool {
	left, right := r.leftElements.Int8[:r.left.extent], r.rightElements.Int8[:r.right.extent]
	if len(left) > 4*r.batch*r.m*max(r.k, 1) || len(right) > 4*r.batch*r.n*max(r.k, 1) {
		return false
	}
	chunks := divideUp(len(left), scanLength) + divideUp(len(right), scanLength)
	if len(r.lows) < chunks {
		r.lows, r.highs = make([]int8, chunks), make([]int8, chunks)
	}
	r.scanned = divideUp(len(left), scanLength)
	r.format = f
	r.parallel(chunks, r.scanTask)
	// Zero counts, as rows and elements that panels lack are zero.
	var low, high, right8 int
	for i := range chunks {
		if i < r.scanned {
			low, high = min(low, int(r.lows[i])), max(high, int(r.highs[i]))
		} else {
			right8 = max(right8, -int(r.lows[i]), int(r.highs[i]))
		}
	}
	r.offset = uint8(-low)
	r.steps = f.stepsWithin(low, high, right8)
	return r.steps >= minSteps
}

const scanLength = 1 << 17

func (r *run) scan(i int) {
	x, at := r.leftElements.Int8[:r.left.extent], i
	if i >= r.scanned {
		x, at = r.rightElements.Int8[:r.right.extent], i-r.scanned
	}
	x = x[at*scanLength:]
	r.lows[i], r.highs[i] = r.format.extremes(x[:min(scanLength, len(x))])
}

func (r *run) multiply() {
	procs := 1
	if !r.alone {
		procs = runtime.GOMAXPROCS(0)
	}
	f := r.format
	columns := roundUp(r.n, f.columns)
	work := r.m * r.n * max(r.k, 1)
	if r.batch > 1 && columns*r.words <= wholeWords && (r.batch >= 2*procs || work < f.cut.task) {
		// Each task multiplies whole products.
		r.tasks.products = max(1, min(f.cut.task/work, r.batch/(4*procs)))
		r.parallel(divideUp(r.batch, r.tasks.products), r.wholeTask)
		return
	}
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

// divide decides how large tasks are. Where there are many rows, tasks become smaller and smaller,
// so that no thread waits long for the last. Otherwise there are about four for each processor,
// unless they become small; tasks for different columns of the same rows pack these rows each,
// which costs little while the columns are many.
func (r *run) divide(procs int) {
	f, p, t := r.format, &r.part, &r.tasks
	want := 1
	if procs > 1 {
		want = divideUp(4*procs, p.batches)
	}
	panels := divideUp(p.columns, f.columns)

	most := f.cut.rows / f.rows * f.rows
	if f.cut.left > 0 {
		// There is room for all words of the part, so that sums stay in the caches until they are
		// complete.
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

	// Packing reads memory, most quickly where the pieces are long: so it is divided along the sums
	// first.
	width := panels * f.columns
	t.packed = divideUp(panels, max(1, min(divideUp(want, max(1, r.blocks(p.words))), width*r.block/packAbove)))
	t.packTasks = divideUp(panels, t.packed)

	r.packed = r.ownPacked.get(p.batches * width * p.words)
	if f.unsigned && p.first {
		resize(&r.corrections, p.batches*width)
		clear(r.corrections)
	}
}

// rowsOf returns the rows of a task, of all rows and those of a panel; none behind the last task.
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

// countRows is the number of tasks that have rows.
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

// resize makes a slice of n elements, which are arbitrary.
func resize(s *[]int32, n int) {
	if cap(*s) < n {
		*s = make([]int32, n)
	}
	*s = (*s)[:n]
}

// packAbove is how many words are worth a task that packs them.
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

// multiplyWhole computes products of a batch from beginning to end.
func (r *run) multiplyWhole(i int) {
	w := workspaces.Get().(*workspace)
	f := r.format
	panels := divideUp(r.n, f.columns)
	o := rightPart{run: r, part: part{columns: r.n, words: r.words, first: true, last: true}}
	o.packed = w.right.get(panels * f.columns * r.words)
	if f.unsigned {
		resize(&w.corrections, panels*f.columns)
		o.corrections = w.corrections
	}
	rows := f.cut.rows / f.rows * f.rows
	for b := i * r.tasks.products; b < min((i+1)*r.tasks.products, r.batch); b++ {
		o.product = b
		clear(o.corrections)
		o.pack(0, r.words, 0, panels, w)
		for row := 0; row < r.m; row += rows {
			o.multiply(row, min(rows, r.m-row), 0, panels, w)
		}
	}
	workspaces.Put(w)
}
