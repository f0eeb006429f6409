package cpu

import (
	"cmp"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/internal/recovered"
)

// A Call is a pass with the memory of its program's inputs and outputs, a row-major slice for
// each: []float32; []uint16 for floats stored in bfloat16, []int8 and []uint8 in 8 bits;
// []int32 and []uint32 for integers; []bool or []loops.Flags for bools. A scalar is a slice of one
// element. An input and the output of the same name and storage may be the same slice, which is
// then updated in place; otherwise slices must not overlap.
type Call struct {
	Pass            *Pass
	Inputs, Outputs []any
}

// Run computes the outputs from the inputs, which are described at [Call].
func (pass *Pass) Run(inputs, outputs []any, parallel loops.Parallel) error {
	return Run([]Call{{pass, inputs, outputs}}, parallel)
}

// Run executes calls, which must not write memory that another call reads or writes. If slices have
// the wrong type or size for the programs, it fails before writing anything. parallel must call its
// function in ascending order, because a call may wait for earlier ones.
func Run(calls []Call, parallel loops.Parallel) error {
	r := &runner{}
	r.advance.L = &r.mu
	for _, c := range calls {
		if err := c.check(); err != nil {
			return err
		}
	}
	for _, c := range calls {
		if err := r.begin(c); err != nil {
			return err
		}
	}
	units := r.units()
	if len(units) > 0 {
		parallel(len(units), func(i int) { r.do(units[i]) })
	}
	return r.failed
}

type runner struct {
	runs    []*run
	mu      sync.Mutex
	advance sync.Cond // a call has finished a sweep, or the first unit has failed
	failed  error
}

type run struct {
	Call
	env    []float32   // scalars
	shared [][]float32 // inputs that all rows share
	tiles  int
	count  int            // units of a sweep
	folds  [][]float64    // of each reduction, by units
	left   []atomic.Int32 // units of each sweep that are not done
	done   int            // sweeps, under the runner's lock
}

// begin prepares a call. A call that computes only scalars is complete when begin returns.
func (r *runner) begin(c Call) (err error) {
	pass := c.Pass
	defer recovered.Catch(executor, pass.p.Name, &err)
	s := &run{Call: c, env: make([]float32, len(pass.scalars.list)),
		shared: make([][]float32, len(pass.inputs)), left: make([]atomic.Int32, len(pass.sweeps))}
	for i, v := range pass.scalars.list {
		switch v.kind {
		case scalarConstant:
			s.env[i] = v.value
		case scalarInput:
			Load(s.env[i:i+1], c.Inputs[v.input], 0)
		}
	}
	pass.scalars.evaluate(0, s.env)
	for _, p := range pass.sweeps {
		for _, v := range p.values {
			if v.kind == inShared && s.shared[v.index] == nil {
				s.shared[v.index] = make([]float32, v.size)
				Load(s.shared[v.index], c.Inputs[v.index], 0)
			}
		}
	}
	s.tiles = (pass.rows + pass.tile - 1) / pass.tile
	s.count = (s.tiles + pass.unit - 1) / pass.unit
	for range pass.reductions {
		s.folds = append(s.folds, make([]float64, s.count))
	}
	for i, p := range pass.sweeps {
		if s.left[i].Store(int32(s.count)); len(p.code) == 0 {
			if err := r.finish(s, i); err != nil {
				return err
			}
		}
	}
	r.runs = append(r.runs, s)
	return nil
}

// A unit is a group of tiles of a call that one goroutine processes in one sweep.
type unit struct {
	run      *run
	sweep, i int
}

// units lists the units in the order in which they are started. The first sweep of the next call
// precedes the second sweep of a call, so that goroutines rarely wait for the end of a sweep, while
// the call's tensors are still in a cache.
func (r *runner) units() (list []unit) {
	sweeps := 0
	for _, s := range r.runs {
		sweeps = max(sweeps, len(s.Pass.sweeps))
	}
	for step := range len(r.runs) + sweeps {
		for sweep := range sweeps {
			i := step - sweep
			if i < 0 || i >= len(r.runs) || sweep >= len(r.runs[i].Pass.sweeps) ||
				len(r.runs[i].Pass.sweeps[sweep].code) == 0 {
				continue
			}
			for part := range r.runs[i].count {
				list = append(list, unit{r.runs[i], sweep, part})
			}
		}
	}
	return list
}

// do waits for the preceding sweep, computes a unit, and completes the unit's sweep if it is the
// last unit. After a failure it computes nothing.
func (r *runner) do(u unit) {
	r.mu.Lock()
	for u.run.done < u.sweep && r.failed == nil {
		r.advance.Wait()
	}
	failed := r.failed
	r.mu.Unlock()
	if failed != nil {
		return
	}
	err := u.compute()
	if err == nil && u.run.left[u.sweep].Add(-1) == 0 {
		err = r.finish(u.run, u.sweep)
	}
	if err != nil {
		r.mu.Lock()
		r.failed = cmp.Or(r.failed, err)
		r.mu.Unlock()
		r.advance.Broadcast()
	}
}

// finish completes a sweep of a call: it combines the units' partial reductions, in order, and
// computes the scalars that depend on them.
func (r *runner) finish(s *run, sweep int) (err error) {
	pass := s.Pass
	defer recovered.Catch(executor, pass.p.Name, &err)
	for i, d := range pass.reductions {
		if d.phase != sweep {
			continue
		}
		total := float64(loops.Neutral(d.fold))
		for _, v := range s.folds[i] {
			total = loops.Join(d.fold, total, v)
		}
		s.env[d.scalar] = float32(total)
	}
	pass.scalars.evaluate(sweep+1, s.env)
	if sweep == len(pass.sweeps)-1 {
		for o, number := range pass.numbers {
			if number >= 0 {
				Store(s.Outputs[o], 0, s.env[number:number+1])
			}
		}
	}
	r.mu.Lock()
	s.done = sweep + 1
	r.mu.Unlock()
	r.advance.Broadcast()
	return nil
}

func (u unit) compute() (err error) {
	s, pass := u.run, u.run.Pass
	defer recovered.Catch(executor, pass.p.Name, &err)
	w, ok := pass.workers.Get().(*worker)
	if !ok {
		values := 0
		for _, p := range pass.sweeps {
			values = max(values, len(p.values))
		}
		w = &worker{scratch: make([]float32, pass.scratch*pass.tile), values: make([][]float32, values),
			lanes: make([]loops.Lanes, len(pass.reductions))}
	}
	defer func() { // keep the worker, but none of the caller's memory
		clear(w.values)
		w.env = nil
		pass.workers.Put(w)
	}()
	for i, d := range pass.reductions {
		if d.phase == u.sweep {
			s.folds[i][u.i] = float64(loops.Neutral(d.fold))
		}
	}
	for tile := u.i * pass.unit; tile < min(s.tiles, (u.i+1)*pass.unit); tile++ {
		for i, d := range pass.reductions {
			w.lanes[i].Reset(d.fold)
		}
		w.compute(s, u.sweep, tile*pass.tile, min(pass.rows, (tile+1)*pass.tile))
		for i, d := range pass.reductions {
			if d.phase == u.sweep {
				s.folds[i][u.i] = loops.Join(d.fold, s.folds[i][u.i], w.lanes[i].Fold(d.fold))
			}
		}
	}
	return nil
}

func (c Call) check() error {
	pass := c.Pass
	if err := pass.check("input", pass.inputs, c.Inputs); err != nil {
		return err
	}
	if err := pass.check("output", pass.outputs, c.Outputs); err != nil {
		return err
	}
	for i, in := range pass.inputs {
		for o, out := range pass.outputs {
			x, isFloats := c.Inputs[i].([]float32)
			y, areFloats := c.Outputs[o].([]float32)
			same := isFloats && areFloats && len(x) > 0 && unsafe.SliceData(x) == unsafe.SliceData(y)
			if same && in.name != out.name {
				return fmt.Errorf("program %q: output %q shares the memory of input %q",
					pass.p.Name, out.name, in.name)
			}
		}
	}
	return nil
}

func (pass *Pass) check(kind string, ports []port, memory []any) error {
	if len(ports) != len(memory) {
		return fmt.Errorf("program %q: got %d %ss, want %d",
			pass.p.Name, len(memory), kind, len(ports))
	}
	for i, p := range ports {
		if err := Check(memory[i], p.t, p.at); err != nil {
			return fmt.Errorf("program %q: %s %q %w", pass.p.Name, kind, p.name, err)
		}
	}
	return nil
}

type worker struct {
	scratch   []float32
	values    [][]float32   // of the nodes, for the rows of a tile, or one row if shared by all
	lanes     []loops.Lanes // of the reductions
	locations []location
	env       []float32
	rows      int
}

func (w *worker) compute(r *run, sweep, first, end int) {
	pass, code := r.Pass, r.Pass.sweeps[sweep].code
	w.locations, w.rows, w.env = pass.sweeps[sweep].values, end-first, r.env
	for i, p := range w.locations {
		switch p.kind {
		case inScratch:
			w.values[i] = w.scratch[p.offset*pass.tile:][:w.rows*p.size]
		case inInput:
			w.values[i] = r.Inputs[p.index].([]float32)[first*p.size : end*p.size]
		case inOutput:
			w.values[i] = r.Outputs[p.index].([]float32)[first*p.size : end*p.size]
		case inShared:
			w.values[i] = r.shared[p.index]
		case inTable:
			w.values[i] = p.table
		}
	}
	for i := range code {
		switch ins := &code[i]; {
		case ins.store:
			Store(r.Outputs[ins.dst], first*ins.size, w.values[ins.in[0].id])
		case ins.op == opInput:
			Load(w.values[ins.dst], r.Inputs[ins.input], first*ins.size)
		default:
			w.execute(ins)
		}
	}
}

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
	if ins.op >= opMulMulS {
		w.fused(ins, dst)
		return
	}
	// length is that of the parts: in a part each operand is either a run of elements or a single
	// number. All operands with repeated elements have runs of one length.
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

func (w *worker) fused(ins *instruction, dst []float32) {
	x := func(i int) []float32 { return w.values[ins.in[i].id] }
	s := func(i int) float32 { return w.env[ins.in[i].id] }
	switch ins.op {
	case opMulMulS:
		loops.MulMulS(dst, x(0), x(1), s(2))
	case opLinAdd:
		loops.LinAdd(dst, x(0), s(1), x(2), s(3))
	case opLinSub:
		loops.LinSub(dst, x(0), s(1), x(2), s(3))
	case opLinMul:
		loops.LinMul(dst, x(0), s(1), x(2), x(3), s(4))
	case opSqrtLin:
		loops.SqrtLin(dst, x(0), s(1), s(2))
	case opReduceMul:
		w.lanes[ins.group].SumMul(x(0), x(1))
	case opReduce:
		if ins.fold == loops.Add {
			w.lanes[ins.group].Sum(x(0))
		} else {
			w.lanes[ins.group].Extreme(ins.fold, x(0))
		}
	}
}

// move copies elements of an operand to dst, repeated or gathered by index.
func (w *worker) move(ins *instruction, dst []float32) {
	x := ins.in[0]
	from := w.values[x.id]
	if len(from)*x.repeat == len(dst) && ins.op == opSpread {
		loops.Spread(dst, from, x.repeat)
		return
	}
	size := w.locations[x.id].size
	for row := range w.rows {
		to, source := dst[row*ins.size:(row+1)*ins.size], from
		if len(from) > size { // a row for each
			source = from[row*size : (row+1)*size]
		}
		if ins.op == opSpread { // of a value that all rows share
			loops.Spread(to, source, x.repeat)
			continue
		}
		for i, at := range ins.index {
			to[i] = source[at]
		}
	}
}

// A part is a run of an operand's elements or, if elements is empty, a single number.
type part struct {
	elements []float32
	number   float32
}

// take sets p to v[at:at+length] or, if number is set, to the single number v[at], which stands for
// length equal elements. It returns the index after the elements taken. An index at the end of v
// wraps around to 0, because all rows may share one v.
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

func elements(op loops.Op, dst []float32, in *[3]part) {
	x, y, z := &in[0], &in[1], &in[2]
	switch f := functionOf(op); {
	case f != nil:
		for i := range dst {
			dst[i] = float32(f(float64(x.at(i)), float64(y.at(i))))
		}
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

// choose sets dst to x where c is not 0, and to y elsewhere.
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
	loops.Select(dst, c.elements, x.elements, x.number, y.elements, y.number)
}
