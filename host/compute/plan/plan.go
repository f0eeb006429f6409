package plan

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/cage-qat/cage/host/compute/cpu"
	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/compute/matmul"
	"github.com/cage-qat/cage/host/compute/memory"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/internal/recovered"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// Options say how a plan computes.
type Options struct {
	// Arithmetic is that of products of floats, [matmul.Float32] or [matmul.BFloat16].
	Arithmetic matmul.Arithmetic
	// Kernels make the kernels of calls, by the calls' names. Other calls are expanded.
	Kernels map[string]func(*program.Call, Options) (*Kernel, error)
	// Sums are the calls whose kernels can add to what they compute ([passes.AddInCalls]).
	Sums []string
	// Recompute is the name of the calls whose adjoints compute values of the forward pass again.
	Recompute string
	// Inputs and Outputs have the storage of those that are floats but not stored in float32, by name.
	Inputs, Outputs map[string]passes.Storage
	// Replaces maps outputs to the inputs whose memory they may take over, by name; without an entry
	// it is the input of the same name.
	Replaces map[string]string
	// Pool, unless nil, has the memory of runs; plans that run in turn share it.
	Pool *memory.Pool
}

// A Plan is a compiled program. It is safe for concurrent use.
type Plan struct {
	p            *program.Program
	instructions []instruction
	slots        []slot
	// The slots whose memory a run takes before, and gives back after, each instruction.
	takes, gives [][]int
	small        bool // a run keeps its memory for the next one
	most         int  // arguments of an instruction
	pool         *memory.Pool
	runs         sync.Pool // of *run
}

// A run is the memory of a run.
type run struct {
	slots     []any
	arguments []any // of an instruction
}

// An instruction computes values. In its run, a slice that is not needed is nil.
type instruction struct {
	name    string
	in, out []int // slots, −1 for none
	all     []int // in, then out
	run     function
	// rounds tells which inputs the instruction rounds to bfloat16 or may read so, and short which
	// outputs it can write so; nil is none.
	rounds, short []bool
	codes         []bool // inputs that it reads as 8-bit integers
	bfloat16      []bool // inputs that may be in bfloat16, which the caller of Run then gives
	inPlace       bool   // an output may have the memory of the input that it replaces
	// overwrites, unless nil, reports whether a value may be computed in the memory of an input.
	overwrites func(out, in int) bool
	// compile, unless nil, compiles the instruction as a pass, once it is known how floats are stored.
	compile func(stored func(slot int) passes.Storage) (*cpu.Pass, error)
	passes  []pass // the pass, or several that are computed side by side
}

// A pass takes the next in inputs and out outputs of its instruction.
type pass struct {
	*cpu.Pass
	in, out int
}

// A function computes slices from slices.
type function = func(in, out []any, parallel loops.Parallel) error

// A slot is the memory of a value.
type slot struct {
	dtype         program.DType
	size          int
	input, output int // index in the arguments of Run, or −1
	constant      any
	stored        passes.Storage // of a float; "" is float32
	bfloat16      bool           // an input that may be in bfloat16
	replaces      bool           // an output that may have the memory of an input
}

// Compile plans the execution of p, which must be valid.
func Compile(p *program.Program, o Options) (plan *Plan, err error) {
	defer recovered.Catch("plan", p.Name, &err)
	if p, err = Prepare(p, o); err != nil {
		return nil, err
	}
	c := &compiler{p: p, options: o, slotOf: slices.Repeat([]int{-1}, p.NumValues()),
		calls: map[string]*call{}, inputOf: map[program.ID]int{},
		rows: map[string]compiledRows{}}
	for i, in := range p.Inputs {
		c.slotOf[i] = c.newSlot(in.Type)
		c.slots[c.slotOf[i]].input = i
	}
	if err := c.instruct(); err != nil {
		return nil, err
	}
	for i, s := range c.slots {
		c.slots[i].replaces = s.output >= 0 && c.replaced[s.output] >= 0
	}
	c.storeInputs()
	c.storeOutputs()
	c.storeCodes()
	if o.Arithmetic == matmul.BFloat16 {
		c.shorten()
	}
	c.storeBools()
	c.reuse()
	for i := range c.list {
		in := &c.list[i]
		if in.compile == nil {
			continue
		}
		k, err := in.compile(func(s int) passes.Storage { return c.slots[s].stored })
		if err != nil {
			return nil, err
		}
		in.run, in.passes = k.Run, []pass{{k, len(in.in), len(in.out)}}
	}
	c.sideBySide()
	plan = &Plan{p: p, instructions: c.list, slots: c.slots, pool: cmp.Or(o.Pool, &memory.Pool{})}
	for i := range p.Inputs { // its slot is i
		plan.slots[i].bfloat16 = true
	}
	for i := range c.list {
		in := &c.list[i]
		in.all = slices.Concat(in.in, in.out)
		plan.most = max(plan.most, len(in.all))
		for k, s := range in.in {
			if s >= 0 && !listed(in.bfloat16, k) {
				plan.slots[s].bfloat16 = false
			}
		}
	}
	plan.assign()
	return plan, nil
}

// Prepare returns the program that a plan executes: it expands the calls without a kernel
// ([transform.Expand]), and lets kernels add sums.
func Prepare(p *program.Program, o Options) (*program.Program, error) {
	p, err := transform.Expand(p, o.Computes, o.Recompute)
	if err == nil {
		p, err = passes.AddInCalls(p, o.Sums...)
	}
	if err != nil {
		return nil, err
	}
	return transform.Simplify(p)
}

func listed(list []bool, i int) bool { return i < len(list) && list[i] }

// smallPlan is the number of bytes of all slots up to which runs keep their memory, such as those
// of decoding a token: taking and giving it back would cost a few percent of the time.
const smallPlan = 4 << 20

// assign finds when the slots that are neither inputs nor constants are first written and last
// used. The memory of an output stays.
func (p *Plan) assign() {
	p.takes, p.gives = make([][]int, len(p.instructions)), make([][]int, len(p.instructions))
	last, known := make([]int, len(p.slots)), make([]bool, len(p.slots))
	for i, in := range p.instructions {
		for _, s := range in.all {
			if s < 0 || p.slots[s].input >= 0 || p.slots[s].constant != nil {
				continue
			}
			if last[s] = i; !known[s] {
				known[s], p.takes[i] = true, append(p.takes[i], s)
			}
		}
	}
	bytes := 0
	for s, i := range last {
		if known[s] && p.slots[s].output < 0 {
			p.gives[i] = append(p.gives[i], s)
			bytes += p.slots[s].bytes()
		}
	}
	p.small = bytes <= smallPlan
}

// element returns the type of the elements in memory.
func (s slot) element() reflect.Type { return cpu.Element(s.dtype, s.stored) }

// inside reports whether a slot is neither an input nor an output nor a constant.
func (s slot) inside() bool { return s.input < 0 && s.output < 0 && s.constant == nil }

// allocate returns new memory for a slot.
func (s slot) allocate() any {
	return reflect.MakeSlice(reflect.SliceOf(s.element()), s.size, s.size).Interface()
}

// ReadsBFloat16 reports whether an input may be in bfloat16, []uint16.
func (p *Plan) ReadsBFloat16(input int) bool { return p.slots[input].bfloat16 }

// Memory returns the bytes that a run needs besides inputs and outputs: the peak size of the values
// in use at a time and the outputs computed so far, less the size of all outputs.
// Elements of different types do not share memory. Outputs that may have the memory of an input are
// not counted.
func (p *Plan) Memory() (bytes int) {
	now, most := map[reflect.Type]int{}, map[reflect.Type]int{}
	counts := func(s slot) bool { return s.output < 0 || !s.replaces }
	for i := range p.instructions {
		for _, id := range p.takes[i] {
			if s := p.slots[id]; counts(s) {
				e := s.element()
				now[e] += s.bytes()
				most[e] = max(most[e], now[e])
			}
		}
		for _, id := range p.gives[i] {
			now[p.slots[id].element()] -= p.slots[id].bytes()
		}
	}
	for _, n := range most {
		bytes += n
	}
	for _, s := range p.slots {
		if s.output >= 0 && counts(s) {
			bytes -= s.bytes()
		}
	}
	return max(0, bytes)
}

func (s slot) bytes() int { return s.size * int(s.element().Size()) }

// Run computes the outputs from the inputs, row-major slices in the order of the program, which are
// []float32, []int32, []uint32 or []bool, or as the options say: []uint16, []int8 or []uint8;
// codes of a product of codes are []int8, and some inputs may be []uint16 in bfloat16
// ([Plan.ReadsBFloat16]). An output and the input that it replaces may be the same slice; otherwise
// outputs must not overlap inputs. Outputs that are nil get memory of the pool when they are
// computed; it is the caller's, also after an error.
// parallel must start its calls in ascending order, because a call may wait for earlier ones.
func (p *Plan) Run(inputs, outputs []any, parallel loops.Parallel) error {
	if len(inputs) != len(p.p.Inputs) || len(outputs) != len(p.p.Outputs) {
		return fmt.Errorf("program %q: got %d inputs and %d outputs, want %d and %d", p.p.Name,
			len(inputs), len(outputs), len(p.p.Inputs), len(p.p.Outputs))
	}
	for i, in := range p.p.Inputs {
		if short, _ := inputs[i].([]uint16); int64(len(short)) == in.Type.Size() && p.ReadsBFloat16(i) {
			continue
		}
		if err := check(inputs[i], in.Type, p.slots[i].stored); err != nil {
			return fmt.Errorf("program %q: input %q %w", p.p.Name, in.Name, err)
		}
	}
	for _, s := range p.slots {
		if s.output < 0 || outputs[s.output] == nil {
			continue
		}
		o := p.p.Outputs[s.output]
		if err := check(outputs[s.output], p.p.TypeOf(o.Value), s.stored); err != nil {
			return fmt.Errorf("program %q: output %q %w", p.p.Name, o.Name, err)
		}
	}
	m := p.begin()
	defer p.end(m)
	for i, s := range p.slots {
		switch {
		case s.input >= 0:
			m.slots[i] = inputs[s.input]
		case s.output >= 0:
			m.slots[i] = outputs[s.output]
		}
	}
	for i, in := range p.instructions {
		for _, id := range p.takes[i] {
			s := p.slots[id]
			if m.slots[id] == nil {
				m.slots[id] = p.pool.Get(s.element(), s.size)
			}
			if s.output >= 0 {
				outputs[s.output] = m.slots[id]
			}
		}
		args := m.arguments[:0]
		for _, s := range in.all {
			if s < 0 {
				args = append(args, nil)
			} else {
				args = append(args, m.slots[s])
			}
		}
		if err := in.run(args[:len(in.in)], args[len(in.in):], parallel); err != nil {
			return fmt.Errorf("program %q: %s: %w", p.p.Name, in.name, err)
		}
		if p.small {
			continue
		}
		for _, id := range p.gives[i] {
			p.pool.Put(m.slots[id])
			m.slots[id] = nil
		}
	}
	return nil
}

// begin returns a run, with the memory of all slots if the plan is small.
func (p *Plan) begin() *run {
	if m, ok := p.runs.Get().(*run); ok {
		return m
	}
	m := &run{slots: make([]any, len(p.slots)), arguments: make([]any, p.most)}
	for i, s := range p.slots {
		m.slots[i] = s.constant
	}
	if p.small {
		for _, id := range slices.Concat(p.gives...) {
			m.slots[id] = p.slots[id].allocate()
		}
	}
	return m
}

// end forgets the arguments of a run, and gives back the memory that it still has after an error.
func (p *Plan) end(m *run) {
	for i, s := range p.slots {
		switch {
		case s.input >= 0 || s.output >= 0:
			m.slots[i] = nil
		case !p.small && s.constant == nil && m.slots[i] != nil:
			p.pool.Put(m.slots[i])
			m.slots[i] = nil
		}
	}
	clear(m.arguments)
	p.runs.Put(m)
}

// check returns an error if memory is not a slice for t, whose floats have the given storage.
func check(memory any, t program.Type, stored passes.Storage) error {
	return cpu.Check(memory, t, cmp.Or(stored, passes.Float32))
}
