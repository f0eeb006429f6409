package rows

import (
	"fmt"
	"math"
	"sync"

	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/compute/pass/byrow"
	"github.com/cage-qat/cage/internal/guard"
	"github.com/cage-qat/cage/sdk/program"
)

// Run computes the outputs from the inputs, each a slice in row-major order: []float32, []uint16 for floats stored in
// bfloat16, []int8 for those in 8 bits, []int32 and []uint32 for integers, []bool for bools. Slices must not overlap. parallel
// calls a function with 0 to n−1, several at once if it likes, and returns when all calls have.
func (k *Kernel) Run(inputs, outputs []any, parallel func(n int, f func(i int))) (err error) {
	defer guard.Catch(executor, k.p.Name, &err)
	if err := k.check("input", k.inputs, inputs); err != nil {
		return err
	}
	if err := k.check("output", k.outputs, outputs); err != nil {
		return err
	}
	r := &run{k: k, inputs: inputs, outputs: outputs, env: make([]float32, len(k.scalars.list)), shared: make([][]float32, len(k.inputs))}
	k.scalars.evaluate(r.env, func(i int) float32 {
		var one [1]float32
		k.load(one[:], inputs, i, 0)
		return one[0]
	})
	widest := 1
	for i, p := range k.values {
		widest = max(widest, p.size)
		if p.kind == inShared {
			r.shared[p.index] = make([]float32, k.values[i].size)
			k.load(r.shared[p.index], inputs, p.index, 0)
		}
	}
	tiles := (k.rows + k.tile - 1) / k.tile
	each := max(1, taskElements/(k.tile*widest)) // tiles of a task
	parallel((tiles+each-1)/each, func(task int) {
		w := k.workers.get(k)
		defer k.workers.put(w)
		for tile := task * each; tile < min(tiles, (task+1)*each); tile++ {
			w.compute(r, tile*k.tile, min(k.rows, (tile+1)*k.tile))
		}
	})
	return nil
}

// run is one call of Run.
type run struct {
	k               *Kernel
	inputs, outputs []any
	env             []float32   // scalars
	shared          [][]float32 // inputs that all rows share
}

// check returns an error if memory does not fit the inputs or outputs.
func (k *Kernel) check(kind string, ports []port, memory []any) error {
	if len(ports) != len(memory) {
		return fmt.Errorf("program %q: %d %ss, want %d", k.p.Name, len(memory), kind, len(ports))
	}
	for i, p := range ports {
		n, ok := -1, false
		switch m := memory[i].(type) {
		case []float32:
			n, ok = len(m), p.dtype == program.Float && (p.at == byrow.Float32 || p.at == byrow.Rounded)
		case []uint16:
			n, ok = len(m), p.dtype == program.Float && p.at == byrow.BFloat16
		case []int8:
			n, ok = len(m), p.dtype == program.Float && p.at == byrow.Int8
		case []bool:
			n, ok = len(m), p.dtype == program.Bool
		case []int32:
			n, ok = len(m), p.dtype == program.Int
		case []uint32:
			n, ok = len(m), p.dtype == program.Uint
		}
		if !ok || n != p.size {
			return fmt.Errorf("program %q: %s %q is a %T of %d elements, want %d of %s stored as %s", k.p.Name, kind, p.name, memory[i], n, p.size, p.dtype, p.at)
		}
	}
	return nil
}

// load reads elements of an input, from the given one on.
func (k *Kernel) load(dst []float32, inputs []any, i, from int) {
	switch m := inputs[i].(type) {
	case []float32:
		if k.inputs[i].at == byrow.Rounded {
			loops.RoundToBFloat16(dst, m[from:])
			return
		}
		copy(dst, m[from:])
	case []uint16:
		loops.FromBFloat16(dst, m[from:])
	case []bool:
		loops.FromBools(dst, m[from:])
	case []int32:
		for i := range dst {
			dst[i] = math.Float32frombits(uint32(m[from+i]))
		}
	case []uint32:
		for i := range dst {
			dst[i] = math.Float32frombits(m[from+i])
		}
	}
}

// store writes elements of an output, from the given one on.
func store(memory any, from int, a []float32) {
	switch m := memory.(type) {
	case []float32:
		copy(m[from:], a)
	case []uint16:
		loops.ToBFloat16(m[from:from+len(a)], a)
	case []int8:
		loops.ToInt8(m[from:from+len(a)], a)
	case []bool:
		loops.ToBools(m[from:from+len(a)], a)
	case []int32:
		for i, x := range a {
			m[from+i] = int32(math.Float32bits(x))
		}
	case []uint32:
		for i, x := range a {
			m[from+i] = math.Float32bits(x)
		}
	}
}

// pool keeps the memory of workers between runs.
type pool struct{ sync.Pool }

func (p *pool) get(k *Kernel) *worker {
	if w, ok := p.Get().(*worker); ok {
		return w
	}
	return &worker{scratch: make([]float32, k.scratch*k.tile), values: make([][]float32, len(k.values))}
}

// put keeps a worker, but none of the caller's memory.
func (p *pool) put(w *worker) {
	clear(w.values)
	w.env = nil
	p.Put(w)
}

// worker is the memory of a goroutine.
type worker struct {
	scratch []float32
	values  [][]float32 // of the nodes, for the rows of a tile; of what all rows share, for one row
	k       *Kernel
	env     []float32
	rows    int
}

// compute computes some rows.
func (w *worker) compute(r *run, first, end int) {
	k := r.k
	w.k, w.rows, w.env = k, end-first, r.env
	for i, p := range k.values {
		switch p.kind {
		case inScratch:
			w.values[i] = w.scratch[p.offset*k.tile:][:w.rows*p.size]
		case inInput:
			w.values[i] = r.inputs[p.index].([]float32)[first*p.size : end*p.size]
		case inOutput:
			w.values[i] = r.outputs[p.index].([]float32)[first*p.size : end*p.size]
		case inShared:
			w.values[i] = r.shared[p.index]
		case inTable:
			w.values[i] = p.table
		}
	}
	for i := range k.code {
		switch ins := &k.code[i]; {
		case ins.store:
			store(r.outputs[ins.dst], first*ins.size, w.values[ins.in[0].id])
		case ins.op == opInput:
			k.load(w.values[ins.dst], r.inputs, ins.input, first*ins.size)
		case ins.op == opQuantize:
			w.quantize(r, ins, first)
		default:
			w.execute(ins)
		}
	}
}

// execute computes a node.
func (w *worker) execute(ins *instruction) {
	dst := w.values[ins.dst]
	switch ins.op {
	case opFill:
		loops.Fill(dst, w.env[ins.in[0].id])
		return
	case opSpread, opGather:
		w.move(ins, dst)
		return
	case opFold:
		loops.GroupFold(ins.fold, dst, w.values[ins.in[0].id], ins.group)
		return
	case opSumMul:
		loops.GroupSumMul(dst, w.values[ins.in[0].id], w.values[ins.in[1].id], ins.group)
		return
	case opLargest:
		loops.GroupLargest(dst, w.values[ins.in[0].id], ins.group)
		return
	case opRotate:
		loops.Rotate(dst, w.values[ins.in[0].id], ins.group)
		return
	}
	// The length of parts in which every operand is a number, or a number for each element. Operands that stand for runs of elements
	// have runs of one length.
	length := len(dst)
	var parts [3]part
	for i, x := range ins.in {
		switch {
		case x.scalar:
			parts[i].number = w.env[x.id]
		case x.repeat > 1:
			length = min(length, x.repeat)
		case len(w.values[x.id]) != len(dst):
			length = min(length, ins.size)
		}
	}
	var next [3]int // element of each operand
	for at := 0; at < len(dst); at += length {
		for i := range ins.in {
			if x := &ins.in[i]; !x.scalar {
				next[i] = parts[i].take(w.values[x.id], next[i], length, x.repeat > 1)
			}
		}
		elements(ins.op, dst[at:at+length], &parts)
	}
}

// move repeats elements, or takes them by their numbers.
func (w *worker) move(ins *instruction, dst []float32) {
	x := ins.in[0]
	from := w.values[x.id]
	if len(from)*x.repeat == len(dst) && ins.op == opSpread {
		loops.Spread(dst, from, x.repeat)
		return
	}
	size := w.k.values[x.id].size
	for row := range w.rows {
		to, source := dst[row*ins.size:(row+1)*ins.size], from
		if len(from) > size { // a row for each
			source = from[row*size : (row+1)*size]
		}
		if ins.op == opSpread { // of what all rows share
			loops.Spread(to, source, x.repeat)
			continue
		}
		for i, at := range ins.index {
			to[i] = source[at]
		}
	}
}

// A part is some elements of an operand, or, if there are none, a number.
type part struct {
	elements []float32
	number   float32
}

// take makes p the elements of a value from the given one on, or the number that stands for as many, and returns the element
// that follows. What all rows share begins anew for each.
func (p *part) take(v []float32, at, length int, number bool) int {
	if at == len(v) {
		at = 0
	}
	if number {
		p.number = v[at]
		return at + 1
	}
	p.elements = v[at : at+length]
	return at + length
}

// elements computes an elementwise operation.
func elements(op loops.Op, dst []float32, in *[3]part) {
	x, y, z := &in[0], &in[1], &in[2]
	switch {
	case op == opClamp && y.elements == nil && z.elements == nil:
		loops.Clamp(dst, x.elements, y.number, z.number)
	case op == opClamp:
		for i := range dst {
			dst[i] = loops.Clamp1(x.at(i), y.at(i), z.at(i))
		}
	case op == opSelect:
		choose(dst, x, y, z)
	case op == opRoundSmall:
		loops.RoundSmall(dst, x.elements)
	case op == opRoundMul:
		loops.RoundMulS(dst, x.elements, y.number)
	case op == opNear:
		loops.Near(dst, x.elements, y.elements, z.number)
	case op == opExpNeg:
		loops.ExpLin(dst, x.elements, -1, 0)
	case op == opExpSub:
		loops.ExpLin(dst, x.elements, 1, y.number)
	case op == opIntoAdd:
		loops.IntoAddS(dst, x.elements, y.number, z.number)
	case op == opMulMul:
		loops.MulMul(dst, x.elements, y.elements, z.elements)
	case op == opSiLUSlope:
		loops.SiLUSlope(dst, x.elements, y.elements)
	case !isBinary(op):
		loops.Unary(op, dst, x.elements)
	case x.elements == nil:
		loops.SBinary(op, dst, x.number, y.elements)
	case y.elements == nil:
		loops.BinaryS(op, dst, x.elements, y.number)
	default:
		loops.Binary(op, dst, x.elements, y.elements)
	}
}

func (p *part) at(i int) float32 {
	if p.elements == nil {
		return p.number
	}
	return p.elements[i]
}

// choose takes x where c is not 0, and y elsewhere.
func choose(dst []float32, c, x, y *part) {
	if c.elements == nil {
		if c.number == 0 {
			x = y
		}
		if x.elements == nil {
			loops.Fill(dst, x.number)
			return
		}
		copy(dst, x.elements)
		return
	}
	switch {
	case x.elements != nil && y.elements != nil:
		loops.Select(dst, c.elements, x.elements, y.elements)
	case x.elements != nil:
		loops.SelectS(dst, c.elements, x.elements, y.number)
	case y.elements != nil:
		loops.SSelect(dst, c.elements, x.number, y.elements)
	default:
		loops.SelectSS(dst, c.elements, x.number, y.number)
	}
}
