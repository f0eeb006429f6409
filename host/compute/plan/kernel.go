package plan

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/compute/matmul"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
)

// A Kernel computes a call and its adjoint.
type Kernel struct {
	Saved   []program.Type // values that Forward writes for Adjoint, beside the results
	Scratch []Scratch      // memory to work in
	Forward func(m Memory, parallel loops.Parallel) error
	// Adjoint computes the gradients. ReadsOperand and ReadsResult tell what it reads of the forward
	// pass. If Adjoint is nil, Both computes results and gradients together: in place of Forward if
	// the adjoints of the results do not depend on the results; otherwise after Forward, computing
	// the results again.
	Adjoint                   func(m Memory, parallel loops.Parallel) error
	ReadsOperand, ReadsResult func(i int) bool
	Both                      func(m Memory, parallel loops.Parallel) error
	BFloat16                  BFloat16
	// Codes tells which operands are integers of 8 bits. They are []int8 or, where something else
	// reads them, []float32. Adjoint does not read them.
	Codes []bool
	// InPlace tells that results and operands may be the same memory if an output and an input of the
	// program have the same name.
	InPlace bool
	// GradientsInPlace is the number of first operands whose gradients Adjoint can compute in the
	// memory of these.
	GradientsInPlace int
	// AllGradients tells that Adjoint computes the gradients of all operands that are floats, also
	// those that nothing reads.
	AllGradients bool
	// Gradients tells of which operands there are gradients, nil of all floats. AddsSum tells that
	// Forward and Adjoint add [Memory.Sum].
	Gradients []bool
	AddsSum   bool
}

// BFloat16 says what may be stored in bfloat16 if products use it: operands, which the kernel
// otherwise rounds; results; the adjoints of results, which Adjoint otherwise rounds; and
// gradients. Operands in Always may be bfloat16 even with float32 products.
type BFloat16 struct {
	Operands, Always             []bool
	Results, Adjoints, Gradients bool
}

// check reports what an adjoint or a sum wants that the kernel does not compute.
func (k *Kernel) check(of *program.Call, gradients []int, sum int) error {
	if sum >= 0 && (!k.AddsSum || k.ReadsResult != nil && k.ReadsResult(0)) { // it would read the sum
		return fmt.Errorf("the kernel of %s adds no sum", of.Name)
	}
	for i, s := range gradients {
		if s >= 0 && k.Gradients != nil && !listed(k.Gradients, i) {
			return fmt.Errorf("the kernel of %s has no gradient of operand %d", of.Name, i)
		}
	}
	return nil
}

// Scratch is memory that a kernel works in. If Rounded is set, it is []uint16 if products are in
// bfloat16, else []float32; if Codes is set, it is []int8.
type Scratch struct {
	program.Type
	Rounded, Codes bool
}

// Memory holds the slices of a kernel. Those of floats are []float32, or []uint16 for bfloat16.
type Memory struct {
	Operands, Results, Saved, Scratch []any
	// Of Adjoint and Both. Adjoints are those of the results; one is nil if it is zero. Gradients are
	// those of the operands; one is nil if it is not wanted (see [Kernel.AllGradients]).
	Adjoints, Gradients []any
	Sum                 []float32 // is added to the first result or gradient; nil for none
}

// Rows returns some of n rows of all tensors but those saved and the scratch.
func (m Memory) Rows(n, first, count int) Memory {
	rows := func(list []any) []any {
		return lists.Map(list, func(memory any) any {
			if memory == nil {
				return nil
			}
			v := reflect.ValueOf(memory)
			return v.Slice(v.Len()/n*first, v.Len()/n*(first+count)).Interface()
		})
	}
	m.Operands, m.Results, m.Adjoints, m.Gradients = rows(m.Operands), rows(m.Results),
		rows(m.Adjoints), rows(m.Gradients)
	return m
}

// NewProduct plans a product in the arithmetic of the options.
func NewProduct(o Options, left, right matmul.Layout) (*matmul.Product, error) {
	tier, err := matmul.Best()
	if err != nil {
		return nil, err
	}
	return matmul.New(tier, o.Arithmetic, left, right)
}

// Elements returns a slice as an operand of package matmul.
func Elements(memory any) matmul.Elements {
	switch m := memory.(type) {
	case []float32:
		return matmul.Elements{Float32: m}
	case []uint16:
		return matmul.Elements{BFloat16: m}
	case []int8:
		return matmul.Elements{Int8: m}
	}
	return matmul.Elements{}
}

// Results returns a slice as the results of a product, to which addend, unless nil, is added.
func Results(memory any, addend []float32) matmul.Results {
	e := Elements(memory)
	return matmul.Results{Float32: e.Float32, BFloat16: e.BFloat16, Addend: addend}
}

// rootOf returns the call that c is the adjoint or the sum of.
func rootOf(c *program.Call) *program.Call {
	for c.Of != nil {
		c = c.Of
	}
	return c
}

// Computes reports whether a kernel computes a call: a call, its adjoint, or either with a sum.
func (o Options) Computes(c *program.Call) bool {
	if root := rootOf(c); o.Kernels[root.Name] == nil || root.Adjoint != nil {
		return false // an adjoint of a call's own is no kernel's
	}
	if c.Adds {
		c = c.Of
	}
	return c.Of == nil || c.Of.Of == nil && !c.Of.Adds
}

// A call is a call in the forward pass, with what its adjoint reads.
type call struct {
	kernel         *Kernel
	operands       []int // slots
	results, saved []int
}

func callKey(c *program.Call, operands []int) string { return fmt.Sprintf("%p %v", c, operands) }

// kernel adds the instruction of the calls in a group.
func (c *compiler) kernel(g group) error {
	of, operands, results := c.callOf(g.nodes)
	base, sum := of, -1
	if of.Adds {
		base, sum, operands = of.Of, operands[len(operands)-1], operands[:len(operands)-1]
	}
	if base.Of != nil {
		return c.adjoint(base, operands, sum, results)
	}
	if g.adjoint != nil {
		back, all, gradients := c.callOf(g.adjoint)
		return c.both(base, operands, results, back, all, gradients)
	}
	f, err := c.forward(base, operands, sum, results)
	if err == nil {
		c.calls[callKey(base, operands)] = f
	}
	return err
}

// callOf returns the call that nodes are results of, the slots of its operands, and the values of
// its results, −1 for those without one.
func (c *compiler) callOf(nodes []program.ID) (of *program.Call, operands []int,
	results []program.ID) {
	n := c.p.Node(nodes[0])
	of = n.Attr.Call
	results = noResults(of)
	for _, id := range nodes {
		results[c.p.Node(id).Attr.Output] = id
	}
	return of, c.operands(n), results
}

func noResults(of *program.Call) []program.ID {
	return slices.Repeat([]program.ID{-1}, len(of.Meaning.Outputs))
}

// both adds the instruction that computes a call and its adjoint, back, at once. all are the
// operands of the adjoint, and gradients its results.
func (c *compiler) both(of *program.Call, operands []int, results []program.ID, back *program.Call,
	all []int, gradients []program.ID) error {
	k, err := c.options.Kernels[of.Name](of, c.options)
	if err != nil {
		return err
	}
	in := instruction{name: of.Name + " and its adjoint"}
	in.in, in.rounds = slices.Clone(operands), slices.Clone(k.BFloat16.Operands)
	in.rounds = append(in.rounds, make([]bool, len(operands)-len(k.BFloat16.Operands))...)
	for _, s := range c.adjointsOf(back, all) {
		in.in, in.rounds = append(in.in, s), append(in.rounds, k.BFloat16.Adjoints)
	}
	n, m := len(operands), len(of.Meaning.Outputs)
	for i, o := range of.Meaning.Outputs {
		s := c.newSlot(of.Meaning.TypeOf(o.Value))
		if results[i] >= 0 {
			c.slotOf[results[i]] = s
		}
		in.out, in.short = append(in.out, s), append(in.short, k.BFloat16.Results)
	}
	wanted := c.gradients(back, gradients)
	if err := k.check(back, wanted, -1); err != nil {
		return err
	}
	in.out = append(in.out, wanted...)
	in.short = append(in.short, slices.Repeat([]bool{k.BFloat16.Gradients}, n)...)
	in.out = append(in.out, c.scratch(k.Scratch)...)
	in.run = func(in, out []any, parallel loops.Parallel) error {
		return k.Both(Memory{Operands: in[:n], Adjoints: in[n:], Results: out[:m],
			Gradients: out[m : m+n], Scratch: out[m+n:]}, parallel)
	}
	c.list = append(c.list, in)
	return nil
}

// adjointsOf returns the slots of the adjoints of a call's results among the operands of its
// adjoint, −1 for those that it does not read.
func (c *compiler) adjointsOf(of *program.Call, operands []int) (slots []int) {
	for _, o := range of.Of.Meaning.Outputs {
		s := -1
		if at := of.Meaning.Input(autodiff.Prefix + o.Name); at >= 0 {
			s = operands[at]
		}
		slots = append(slots, s)
	}
	return slots
}

// gradients makes the slots of an adjoint's results, in the order of the call's operands, −1 for
// those that nothing reads.
func (c *compiler) gradients(of *program.Call, results []program.ID) []int {
	slots := slices.Repeat([]int{-1}, len(of.Of.Meaning.Inputs))
	for i, o := range of.Meaning.Outputs {
		if id := results[i]; id >= 0 {
			c.slotOf[id] = c.newSlot(of.Meaning.TypeOf(o.Value))
			slots[of.Of.Meaning.Input(strings.TrimPrefix(o.Name, autodiff.Prefix))] = c.slotOf[id]
		}
	}
	return slots
}

func (c *compiler) scratch(list []Scratch) (slots []int) {
	for _, t := range list {
		s := c.newSlot(t.Type)
		switch {
		case t.Codes:
			c.slots[s].stored = passes.Int8
		case t.Rounded && c.options.Arithmetic == matmul.BFloat16:
			c.slots[s].stored = passes.BFloat16
		}
		slots = append(slots, s)
	}
	return slots
}

// forward adds the instruction that computes a call. An unused result, too, gets memory of its
// own.
func (c *compiler) forward(of *program.Call, operands []int, sum int,
	results []program.ID) (*call, error) {
	k, err := c.options.Kernels[of.Name](of, c.options)
	if err != nil {
		return nil, err
	}
	if err := k.check(of, nil, sum); err != nil {
		return nil, err
	}
	f := &call{kernel: k, operands: operands}
	for i, o := range of.Meaning.Outputs {
		f.results = append(f.results, c.newSlot(of.Meaning.TypeOf(o.Value)))
		if id := results[i]; id >= 0 {
			c.slotOf[id] = f.results[i]
		}
	}
	for _, t := range k.Saved {
		f.saved = append(f.saved, c.newSlot(t))
	}
	n, m := len(operands), len(f.results)
	in := instruction{name: of.Name, in: slices.Concat(operands, []int{sum}),
		out: slices.Concat(f.results, f.saved)}
	in.rounds, in.short = k.BFloat16.Operands, slices.Repeat([]bool{k.BFloat16.Results && sum < 0}, m)
	in.codes, in.bfloat16, in.inPlace = k.Codes, k.BFloat16.Always, k.InPlace
	scratch := len(in.out)
	in.out = append(in.out, c.scratch(k.Scratch)...)
	in.run = func(in, out []any, parallel loops.Parallel) error {
		return k.Forward(Memory{Operands: in[:n], Results: out[:m], Saved: out[m:scratch],
			Scratch: out[scratch:], Sum: floats(in[n])}, parallel)
	}
	c.list = append(c.list, in)
	return f, nil
}

// adjoint adds the instruction that computes the adjoint of a call. Unless the call was computed by
// a kernel from the same operands, it is computed again.
func (c *compiler) adjoint(of *program.Call, operands []int, sum int, results []program.ID) error {
	base := of.Of
	n := len(base.Meaning.Inputs)
	f, computed := c.calls[callKey(base, operands[:n])]
	if !computed {
		k, err := c.options.Kernels[base.Name](base, c.options)
		if err != nil {
			return err
		}
		f = &call{kernel: k}
	}
	k := f.kernel
	if k.Adjoint == nil {
		if err := k.check(of, nil, sum); err != nil {
			return err
		}
		return c.both(base, operands[:n], noResults(base), of, operands, results)
	}
	if !computed {
		var err error
		if f, err = c.forward(base, operands[:n], -1, noResults(base)); err != nil {
			return err
		}
	}
	k = f.kernel
	in := instruction{name: of.Name}
	for i, s := range operands[:n] {
		in.in = append(in.in, only(s, k.ReadsOperand(i)))
		in.rounds = append(in.rounds, listed(k.BFloat16.Operands, i))
	}
	for i, s := range f.results {
		in.in, in.rounds = append(in.in, only(s, k.ReadsResult(i))), append(in.rounds, true)
	}
	in.in = append(in.in, f.saved...)
	in.rounds = append(in.rounds, make([]bool, len(f.saved))...)
	for _, s := range c.adjointsOf(of, operands) {
		in.in, in.rounds = append(in.in, s), append(in.rounds, k.BFloat16.Adjoints)
	}
	in.in = append(in.in, sum)
	in.out, in.short = c.gradients(of, results), slices.Repeat([]bool{k.BFloat16.Gradients}, n)
	if err := k.check(of, in.out, sum); err != nil {
		return err
	}
	for i, input := range base.Meaning.Inputs {
		if k.AllGradients && in.out[i] < 0 && input.Type.DType == program.Float {
			in.out[i] = c.newSlot(input.Type)
		}
	}
	if sum >= 0 {
		in.short[0] = false
	}
	in.out = append(in.out, c.scratch(k.Scratch)...)
	in.overwrites = func(gradient, operand int) bool {
		return gradient == operand && operand < k.GradientsInPlace
	}
	r, s := n+len(f.results), n+len(f.results)+len(f.saved)
	in.run = func(in, out []any, parallel loops.Parallel) error {
		last := len(in) - 1
		return k.Adjoint(Memory{Operands: in[:n], Results: in[n:r], Saved: in[r:s], Adjoints: in[s:last],
			Gradients: out[:n], Scratch: out[n:], Sum: floats(in[last])}, parallel)
	}
	c.list = append(c.list, in)
	return nil
}

func only(slot int, read bool) int {
	if read {
		return slot
	}
	return -1
}

func floats(memory any) []float32 {
	list, _ := memory.([]float32)
	return list
}
