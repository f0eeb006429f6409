package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/cage-qat/cage/host/compute/cpu"
	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
)

// A compiler turns the nodes of a program into instructions.
type compiler struct {
	p       *program.Program
	options Options
	slots   []slot
	slotOf  []int // of values that are in memory
	list    []instruction
	calls   map[string]*call // by [callKey]

	groups []group
	place  []int        // of each value: the group that computes it, −1 for inputs
	source []program.ID // of each value: the one whose memory it shares
	free   []bool       // values that each reader computes again, instead of reading them
	// results of scatter_add that are not stored, but added in place to the other operand of a sum
	added []bool
	// replaced has the input whose memory an output may have, or −1. inputOf maps the values of these
	// outputs to the inputs.
	replaced []int
	inputOf  map[program.ID]int
	rows     map[string]compiledRows // by program and storage: layers have the same programs
	// earlier has the groups that come before others though these do not depend on them.
	earlier map[int][]int
}

type compiledRows struct {
	pass *cpu.Pass
	err  error
}

// A group is a number of nodes that usually one instruction computes: the results of a call,
// another operation alone, or operations that package cpu computes in a pass, or in several if it
// refuses.
type group struct {
	nodes   []program.ID
	pass    bool
	adjoint []program.ID // results of the adjoint of a call, which are computed with it
	// numbers is set if it computes single numbers, such as bias corrections, from inputs and other
	// such groups, and fromInputs if it computes other values from these alone.
	numbers, fromInputs bool
	reader              int  // the only other group that reads it, or −1
	read                bool // by several groups
}

// onlyRead reports whether no group but one reads g.
func (g *group) onlyRead(by int) bool { return !g.read && (g.reader < 0 || g.reader == by) }

func (c *compiler) newSlot(t program.Type) int {
	c.slots = append(c.slots, slot{dtype: t.DType, size: int(t.Size()), input: -1, output: -1})
	return len(c.slots) - 1
}

func (c *compiler) instruct() error {
	c.arrange()
	c.replaced = slices.Repeat([]int{-1}, len(c.p.Outputs))
	for i, o := range slices.Backward(c.p.Outputs) {
		at := c.p.Input(cmp.Or(c.options.Replaces[o.Name], o.Name))
		if c.replaced[i] = at; at >= 0 {
			c.inputOf[c.source[o.Value]] = at
		}
	}
	if err := c.joinAdjoints(); err != nil {
		return err
	}
	c.readBefore()
	used := c.usedOutside()
	for g, group := range c.groups {
		n := c.p.Node(group.nodes[0])
		var err error
		switch {
		case group.pass:
			err = c.pass(group.nodes, used)
		case n.Op == program.OpCall:
			err = c.kernel(group)
		default:
			err = c.alone(n, group.nodes[0])
		}
		if err != nil {
			return fmt.Errorf("group %d: %w", g, err)
		}
	}
	c.bindOutputs()
	return nil
}

// operands returns the slots of a node's operands. Free operations get one here, if an operation
// that was meant for a pass is executed alone.
func (c *compiler) operands(n *program.Node) []int {
	slots := make([]int, len(n.Args))
	for i, a := range n.Args {
		s := c.source[a]
		if c.slotOf[s] < 0 && c.free[s] && !c.added[s] {
			if err := c.alone(c.p.Node(s), s); err != nil {
				panic(err) // recovered by Compile
			}
		}
		slots[i] = c.slotOf[s]
	}
	return slots
}

// bindOutputs lets the program's outputs be computed in the memory that they are wanted in. It may
// be that of the input that it replaces: an output that is known before the last instruction that
// reads the input is copied in the end.
func (c *compiler) bindOutputs() {
	var first, last []instruction // copies before and after all other instructions
	copying := func(list *[]instruction, from int, t program.Type) (to int) {
		to = c.newSlot(t)
		*list = append(*list, instruction{name: "copy", in: []int{from}, out: []int{to},
			run: func(in, out []any, _ loops.Parallel) error {
				copyAny(out[0], in[0])
				return nil
			}})
		return to
	}
	for i, o := range c.p.Outputs {
		s, t := c.slotOf[c.source[o.Value]], c.p.TypeOf(o.Value)
		same := c.replaced[i]
		if c.slots[s].inside() &&
			(same < 0 || c.overwrites(s, c.slotOf[same], c.name(c.source[o.Value], true) == inName(same))) {
			c.slots[s].output = i
			continue
		}
		if in := c.slots[s].input; in >= 0 && in != same && slices.Contains(c.replaced, in) {
			s = copying(&first, s, t)
		}
		to := copying(&last, s, t)
		c.slots[to].output = i
	}
	c.list = slices.Concat(first, c.list, last)
}

// overwrites reports whether the instruction that computes a slot can do so in the memory of an
// input, which no later one reads. named is set if both have the same name in a pass.
func (c *compiler) overwrites(slot, input int, named bool) bool {
	for _, in := range slices.Backward(c.list) {
		reads := slices.Contains(in.in, input)
		if slices.Contains(in.out, slot) {
			return !reads || in.inPlace && named
		}
		if reads {
			return false
		}
	}
	return false
}

// arrange divides the nodes into groups. A node joins the pass that computes the last of its
// operands, and passes that read only inputs, and that no other group reads, join it as well: an
// update of a weight is one pass. Small nodes that depend on nothing but inputs, such as factors
// that all updates share, are groups of their own, which the groups that read them wait for.
func (c *compiler) arrange() {
	values := c.p.NumValues()
	c.place, c.source, c.free = make([]int, values), make([]program.ID, values), make([]bool, values)
	c.accumulate()
	inMemory, ofCall := c.inMemory(), map[string]int{}
	for i := range c.p.Inputs {
		c.place[i], c.source[i] = -1, program.ID(i)
	}
	for i := range c.p.Nodes {
		n, id := &c.p.Nodes[i], program.ID(len(c.p.Inputs)+i)
		c.source[id], c.place[id] = id, -1
		switch {
		case isAlias(n):
			c.source[id] = c.source[n.Args[0]]
			c.free[id] = true
			continue
		case isFree(n) && !inMemory[id] || c.added[id]:
			c.free[id] = true
			continue
		}
		pass, key := c.inPass(n), ""
		if n.Op == program.OpCall {
			key = fmt.Sprintf("%p %v", n.Attr.Call, n.Args)
		}
		reads := c.groupsRead(id)
		last := -1 // the last group that is read, except groups of numbers
		for _, g := range reads {
			if !c.groups[g].numbers {
				last = max(last, g)
			}
		}
		numbers := last < 0 && n.Type.Size() == 1
		if numbers && len(reads) > 0 && pass {
			last = slices.Max(reads)
		}
		at, same := ofCall[key]
		switch {
		case same && key != "":
		case pass && last >= 0 && c.groups[last].pass && c.groups[last].numbers == numbers:
			at = last
			for _, g := range reads {
				of := &c.groups[g]
				if g != at && n.Type.Size() > 1 && of.fromInputs && !of.numbers && of.pass && of.onlyRead(at) {
					c.join(g, at)
				}
			}
		default:
			at = len(c.groups)
			c.groups = append(c.groups, group{pass: pass, numbers: numbers, fromInputs: true, reader: -1})
		}
		to := &c.groups[at]
		to.nodes = append(to.nodes, id)
		ofCall[key], c.place[id] = at, at
		for _, g := range c.groupsRead(id) {
			if of := &c.groups[g]; g != at {
				to.fromInputs = to.fromInputs && of.numbers
				if of.read = of.read || of.reader >= 0 && of.reader != at; !of.read {
					of.reader = at
				}
			}
		}
	}
	c.sort()
}

// groupsRead lists the groups whose values a node reads.
func (c *compiler) groupsRead(id program.ID) (list []int) {
	for _, s := range c.reads(id) {
		if g := c.place[s]; g >= 0 && !slices.Contains(list, g) {
			list = append(list, g)
		}
	}
	return list
}

// join moves the nodes of a group to another one.
func (c *compiler) join(from, to int) {
	for _, id := range c.groups[from].nodes {
		c.place[id] = to
	}
	nodes := append(c.groups[from].nodes, c.groups[to].nodes...)
	slices.Sort(nodes)
	c.groups[to].nodes, c.groups[from].nodes = nodes, nil
}

// joinAdjoints merges calls with their adjoints where the kernel allows it and the adjoints of
// the results do not depend on the results. It sorts the groups again.
func (c *compiler) joinAdjoints() error {
	forward := map[string]int{}
	joined := false
	for g := range c.groups {
		n := c.p.Node(c.groups[g].nodes[0])
		if n.Op != program.OpCall || n.Attr.Call.Adds {
			continue
		}
		if n.Attr.Call.Of == nil {
			forward[c.key(n.Attr.Call, n.Args)] = g
			continue
		}
		of := n.Attr.Call.Of
		operands := n.Args[:len(of.Meaning.Inputs)]
		at, ok := forward[c.key(of, operands)]
		if !ok || c.groups[at].adjoint != nil {
			continue
		}
		k, err := c.options.Kernels[of.Name](of, c.options)
		if err != nil {
			return err
		}
		adjoints := n.Args[len(operands):]
		if k.Adjoint != nil || slices.ContainsFunc(adjoints, func(id program.ID) bool {
			return slices.ContainsFunc(c.sources(id), func(s program.ID) bool {
				return c.needs(c.place[s], at, map[int]bool{})
			})
		}) {
			continue
		}
		c.groups[at].adjoint, c.groups[g].nodes, joined = c.groups[g].nodes, nil, true
		for _, id := range c.groups[at].adjoint {
			c.place[id] = at
		}
	}
	if joined {
		c.sort()
	}
	return nil
}

// readBefore puts groups that read an input before the one that computes the output in its memory,
// unless they depend on that.
func (c *compiler) readBefore() {
	readers := map[program.ID][]int{}
	for g := range c.groups {
		for _, s := range c.readBy(g) {
			readers[s] = append(readers[s], g)
		}
	}
	c.earlier = map[int][]int{}
	for i, o := range c.p.Outputs {
		g, input := c.place[c.source[o.Value]], program.ID(c.replaced[i])
		for _, r := range readers[input] {
			if g >= 0 && r != g && !c.needs(r, g, map[int]bool{}) {
				c.earlier[g] = append(c.earlier[g], r)
			}
		}
	}
	c.sort()
	c.earlier = nil
}

// key is [callKey] of values.
func (c *compiler) key(of *program.Call, args []program.ID) string {
	return callKey(of, lists.Map(args, func(a program.ID) int { return int(c.source[a]) }))
}

// needs reports whether a group is another one, or depends on it.
func (c *compiler) needs(g, other int, seen map[int]bool) bool {
	if g < 0 || seen[g] {
		return false
	}
	seen[g] = true
	return g == other || slices.ContainsFunc(c.before(g), func(g int) bool {
		return c.needs(g, other, seen)
	})
}

// before lists the groups that compute what a group reads, and those of earlier.
func (c *compiler) before(g int) (list []int) {
	list = slices.Clone(c.earlier[g])
	for _, s := range c.readBy(g) {
		if at := c.place[s]; at >= 0 && at != g {
			list = append(list, at)
		}
	}
	return list
}

// sort puts each group after those that it depends on, and otherwise keeps their order. Empty
// groups leave.
func (c *compiler) sort() {
	after, waits := make([][]int, len(c.groups)), make([]int, len(c.groups))
	for g := range c.groups {
		for _, before := range c.before(g) {
			after[before] = append(after[before], g)
			waits[g]++
		}
	}
	var groups []group
	to, last := make([]int, len(c.groups)), -1
	var put func(g int)
	put = func(g int) {
		if len(c.groups[g].nodes) > 0 {
			to[g] = len(groups)
			groups = append(groups, c.groups[g])
		}
		for _, next := range after[g] {
			if waits[next]--; waits[next] == 0 && next < last { // its turn has passed
				put(next)
			}
		}
	}
	for last = range c.groups {
		if waits[last] == 0 {
			put(last)
		}
	}
	for id, g := range c.place {
		if g >= 0 {
			c.place[id] = to[g]
		}
	}
	c.groups = groups
}

func isAlias(n *program.Node) bool {
	return n.Op == program.OpReshape || n.Op == program.OpStopGradient
}

func isFree(n *program.Node) bool {
	switch n.Op {
	case program.OpConstant:
		return n.Type.Size() == 1
	case program.OpIota, program.OpBroadcast:
		return true
	}
	return false
}

// inPass reports whether package cpu may compute an operation in a pass.
func (c *compiler) inPass(n *program.Node) bool {
	if _, refused := passes.UnsupportedByRows[n.Op]; refused || n.Op == program.OpCall ||
		n.Op == program.OpAdd && (c.added[n.Args[0]] || c.added[n.Args[1]]) {
		return false
	}
	reduces := n.Op == program.OpReduceSum || n.Op == program.OpReduceMax ||
		n.Op == program.OpReduceMin
	if reduces && n.Type.Size() > 1 && n.Attr.Axes[0] == 0 {
		return false // a pass reduces within rows
	}
	return n.Op != program.OpConstant || n.Type.Size() == 1
}

// accumulate finds sums of scattered values and of another value that nothing else reads, as in the
// gradient of an embedding that is the head, too.
func (c *compiler) accumulate() {
	uses := passes.Uses(c.p)
	c.added = make([]bool, c.p.NumValues())
	for i := range c.p.Nodes {
		n := &c.p.Nodes[i]
		if n.Op != program.OpAdd {
			continue
		}
		for k, scattered := range n.Args {
			of, other := c.p.Node(scattered), n.Args[1-k]
			to := c.p.Node(other)
			if of != nil && of.Op == program.OpScatterAdd && uses[scattered] == 1 && uses[other] == 1 &&
				to != nil && to.Op == program.OpCall && to.Attr.Call.Of != nil &&
				of.Type.Equal(n.Type) && to.Type.Equal(n.Type) {
				c.added[scattered] = true
				break
			}
		}
	}
}

// inMemory marks free operations that are needed in memory: by an instruction of their own, or as
// an output.
func (c *compiler) inMemory() []bool {
	marked := make([]bool, c.p.NumValues())
	mark := func(id program.ID) {
		for n := c.p.Node(id); n != nil && isAlias(n); n = c.p.Node(id) {
			id = n.Args[0]
		}
		marked[id] = true
	}
	for i := range c.p.Nodes {
		if n := &c.p.Nodes[i]; !isAlias(n) && !c.inPass(n) {
			for _, a := range n.Args {
				mark(a)
			}
		}
	}
	for _, o := range c.p.Outputs {
		mark(o.Value)
	}
	return marked
}

// sources lists the values in memory from which a value can be computed by free operations.
func (c *compiler) sources(id program.ID) []program.ID {
	if !c.free[id] {
		return []program.ID{id}
	}
	return c.reads(id)
}

// reads lists the sources of the operands of nodes.
func (c *compiler) reads(nodes ...program.ID) (list []program.ID) {
	for _, id := range nodes {
		for _, a := range c.p.Node(id).Args {
			list = append(list, c.sources(a)...)
		}
	}
	return list
}

// readBy lists the values in memory that a group reads.
func (c *compiler) readBy(g int) []program.ID {
	return c.reads(slices.Concat(c.groups[g].nodes, c.groups[g].adjoint)...)
}

// usedOutside marks the values that are outputs, or that another group reads.
func (c *compiler) usedOutside() []bool {
	used := make([]bool, c.p.NumValues())
	for g := range c.groups {
		for _, s := range c.readBy(g) {
			used[s] = used[s] || c.place[s] != g
		}
	}
	for _, o := range c.p.Outputs {
		used[c.source[o.Value]] = true
	}
	return used
}

// pass adds the instructions of operations that package cpu computes: one, or as many as it needs.
func (c *compiler) pass(nodes []program.ID, used []bool) error {
	if err := c.onePass(nodes, used); !refused(err) {
		return err
	}
	if len(nodes) == 1 {
		return c.alone(c.p.Node(nodes[0]), nodes[0])
	}
	// A node joins the part that computes the last of its operands, if one pass computes both.
	var parts [][]program.ID
	part := map[program.ID]int{}
	inParts := slices.Clone(used) // values that are read by other parts
	for _, id := range nodes {
		last := -1
		for _, s := range c.reads(id) {
			if at, ok := part[s]; ok {
				last = max(last, at)
			}
		}
		if last >= 0 {
			joined := append(slices.Clone(parts[last]), id)
			all := slices.Repeat([]bool{true}, len(used))
			p, _, _, err := c.extract(joined, all)
			if err == nil {
				_, err = c.compileRows(p, nil)
			}
			if err == nil {
				parts[last], part[id] = joined, last
				continue
			}
			if !refused(err) {
				return err
			}
		}
		part[id] = len(parts)
		parts = append(parts, []program.ID{id})
	}
	for _, id := range nodes {
		for _, s := range c.reads(id) {
			if at, ok := part[s]; ok && at != part[id] {
				inParts[s] = true
			}
		}
	}
	for _, nodes := range parts {
		err := c.onePass(nodes, inParts)
		if refused(err) && len(nodes) == 1 {
			err = c.alone(c.p.Node(nodes[0]), nodes[0])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func refused(err error) bool {
	_, is := errors.AsType[*passes.Refusal](err)
	return is
}

// onePass adds the instruction of a pass, or returns its refusal.
func (c *compiler) onePass(nodes []program.ID, used []bool) error {
	p, inputs, outputs, err := c.extract(nodes, used)
	if err != nil {
		return err
	}
	if _, err := c.compileRows(p, nil); err != nil {
		return err
	}
	in := instruction{name: fmt.Sprintf("pass of %d operations", len(nodes)),
		in: make([]int, len(inputs)), out: make([]int, len(outputs)),
		short: slices.Repeat([]bool{true}, len(outputs)), inPlace: true}
	for i, id := range inputs {
		in.in[i] = c.slotOf[c.source[id]]
	}
	for i, id := range outputs {
		c.slotOf[id] = c.newSlot(c.p.TypeOf(id))
		in.out[i] = c.slotOf[id]
	}
	slotsIn, slotsOut := in.in, in.out
	in.overwrites = func(out, in int) bool {
		return p.TypeOf(p.Outputs[out].Value).Equal(p.Inputs[in].Type)
	}
	in.compile = func(storedIn func(slot int) passes.Storage) (*cpu.Pass, error) {
		stored, of := map[string]passes.Storage{}, *p
		of.Outputs = slices.Clone(p.Outputs)
		note := func(name string, slot int) {
			if at := storedIn(slot); at != "" {
				stored[name] = at
			}
		}
		for i, s := range slotsIn {
			note(p.Inputs[i].Name, s)
		}
		for i, s := range slotsOut {
			o := &of.Outputs[i]
			at := of.Input(o.Name)
			if reused := slices.Index(slotsIn, s); reused >= 0 {
				o.Name = p.Inputs[reused].Name
			} else if at >= 0 && (c.slots[slotsIn[at]].input < 0 || stored[o.Name] != storedIn(s)) {
				o.Name = fmt.Sprint("out.", i) // it is not in the input's memory
			}
			note(o.Name, s)
		}
		return c.compileRows(&of, stored)
	}
	c.list = append(c.list, in)
	return nil
}

// extract returns the program of some nodes, its inputs and its outputs: those that are used
// elsewhere.
func (c *compiler) extract(nodes []program.ID, used []bool) (p *program.Program, inputs,
	outputs []program.ID, err error) {
	b := program.NewSimplifier(c.p.Name)
	values := map[program.ID]program.Value{}
	var value func(id program.ID) program.Value
	value = func(id program.ID) program.Value {
		if _, ok := values[id]; !ok { // an input is known, and what else is read is free
			n := c.p.Node(id)
			values[id] = b.Apply(n.Op, n.Attr, n.Type, lists.Map(n.Args, value)...)
		}
		return values[id]
	}
	var read func(id program.ID)
	read = func(id program.ID) {
		switch {
		case slices.Contains(nodes, id) || slices.Contains(inputs, id):
		case c.free[id] && (!c.isRow(id) || slices.Contains(nodes, c.source[id])):
			for _, a := range c.p.Node(id).Args {
				read(a)
			}
		default:
			inputs = append(inputs, id)
		}
	}
	for _, id := range nodes {
		for _, a := range c.p.Node(id).Args {
			read(a)
		}
	}
	names := map[string]string{} // equal programs have equal names, so that one is compiled
	for i, id := range inputs {
		name := fmt.Sprint("in.", i)
		names[c.name(id, false)] = name
		values[id] = b.Input(name, c.p.TypeOf(id))
	}
	for _, id := range nodes {
		value(id)
	}
	for _, id := range nodes {
		if used[id] {
			name := cmp.Or(names[c.name(id, true)], fmt.Sprint("out.", len(outputs)))
			b.Output(name, values[id])
			outputs = append(outputs, id)
		}
	}
	p, err = b.Build()
	return p, inputs, outputs, err
}

// isRow reports whether a value is another one in memory as a row [1, n], which all rows of a pass
// may share.
func (c *compiler) isRow(id program.ID) bool {
	n := c.p.Node(id)
	if n == nil || n.Op != program.OpReshape || len(n.Type.Shape) != 2 || n.Type.Shape[0] != 1 {
		return false
	}
	s := c.source[id]
	return !c.free[s] && (int(s) >= len(c.p.Inputs) || !slices.Contains(c.replaced, int(s)))
}

// name returns the name of a value as an input or an output of the program of a pass: an output
// that has the name of an input may be computed in its place.
func (c *compiler) name(id program.ID, output bool) string {
	if int(id) < len(c.p.Inputs) {
		return inName(int(id))
	}
	if at, ok := c.inputOf[id]; ok && output {
		return inName(at)
	}
	return fmt.Sprint("value.", id)
}

func inName(input int) string { return fmt.Sprint("in.", input) }

// compileRows calls the function [compileRows] once for a program and how its values are stored.
func (c *compiler) compileRows(p *program.Program, stored map[string]passes.Storage) (
	*cpu.Pass, error) {
	key := p.Hash() + fmt.Sprint(stored)
	made, ok := c.rows[key]
	if !ok {
		made.pass, made.err = compileRows(p, stored)
		c.rows[key] = made
	}
	return made.pass, made.err
}

// compileRows compiles p for as many rows as it can be divided into.
func compileRows(p *program.Program, stored map[string]passes.Storage) (*cpu.Pass, error) {
	if k, err := cpu.CompileFlat(p, stored); !refused(err) {
		return k, err
	}
	var widest program.Type
	for i := range p.NumValues() {
		if t := p.TypeOf(program.ID(i)); len(widest.Shape) == 0 || t.Size() > widest.Size() {
			widest = t
		}
	}
	rows := int(widest.Size())
	err := error(&passes.Refusal{Program: p.Name, Reason: "it has no rows"})
	for _, d := range slices.Backward(widest.Shape) {
		var k *cpu.Pass
		if k, err = cpu.Compile(p, rows, stored); !refused(err) {
			return k, err
		}
		rows /= d
	}
	if widest.Size() > smallest {
		return nil, err
	}
	k, last := cpu.Compile(p, 1, stored)
	if refused(last) {
		return nil, err
	}
	return k, last
}

// smallest is the number of elements up to which a tensor may be one row, whatever is done with it:
// a row has tables of its size, and one task computes it.
const smallest = 1 << 12
