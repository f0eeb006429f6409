package lower

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cage-qat/cage/host/compute/calls"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// Calls are the rules for calls in programs, by the names of the calls. Calls without a rule,
// except those of quantizers, are lowered by their meanings.
type Calls map[string]Rule

// A Rule lowers a call and its adjoint.
type Rule struct {
	// Forward returns the results, and a function for the gradients of the operands; nil if there are
	// none, or if Both computes them.
	Forward func(c Call) (results []*graph.Node, back Back)
	// Both, unless nil, returns results and gradients together. It is called in place of Forward if
	// the adjoints of the results do not depend on these.
	Both func(c Call, d []Adjoint) (results, gradients []*graph.Node)
	// Rounds tells that Forward and its Back round the operands to the device's precision, or accept
	// them rounded. AddsSum tells that Back adds a sum in the same pass over memory.
	Rounds, AddsSum bool
}

// A Call is a call in a graph.
type Call struct {
	*program.Call
	Args []*graph.Node
	// MayRound tells that the first result may be rounded to the device's precision.
	MayRound bool
}

// Back returns the gradients of a call's operands, in order, given the adjoints of its results; nil
// for those without one. It adds sum, unless nil, to the first gradient.
type Back func(d []Adjoint, sum *graph.Node) []*graph.Node

// An Adjoint is that of a result of a call. The zero value is zero.
type Adjoint struct {
	e  *evaluation
	id program.ID
}

// Node returns the adjoint; nil if it is zero.
func (a Adjoint) Node() *graph.Node {
	if a.e == nil {
		return nil
	}
	return a.e.value(a.id)
}

// Lower adds the operations of p to the graph, as the function [Lower] does, but rotations of rows
// become kernels if the device has them, which read and write each number once. Adjoints of
// calls whose name is recompute compute anew what they read of the forward pass, so that it
// need not stay in memory; "" is no name. Inputs and outputs that are codes may be int8.
func (r Calls) Lower(g *graph.Graph, p *program.Program, inputs []*graph.Node,
	recompute string) map[string]*graph.Node {
	return newEvaluation(g, p, inputs, r, recompute, true).outputs()
}

// newEvaluation prepares p for a graph.
func newEvaluation(g *graph.Graph, p *program.Program, inputs []*graph.Node, r Calls,
	recompute string, kernels bool) *evaluation {
	err := Check(p)
	if err == nil && len(inputs) != len(p.Inputs) {
		err = fmt.Errorf("program %q: got %d inputs, want %d", p.Name, len(inputs), len(p.Inputs))
	}
	if err == nil {
		p, err = transform.Expand(p, func(c *program.Call) bool { return r.keeps(c, recompute) }, "")
	}
	if err == nil && kernels && HasKernels(g) {
		p, err = passes.AddInCalls(p, r.adding()...)
	}
	if err == nil {
		p, err = transform.Simplify(p)
	}
	if err == nil {
		err = Check(p)
	}
	if err != nil {
		panic(err)
	}
	e := &evaluation{lowering: lowering{g: g, p: p, kernels: kernels},
		rules: r, recompute: recompute, values: make([]*graph.Node, p.NumValues()),
		local:   make([]*graph.Node, p.NumValues()),
		readers: make([][]program.ID, p.NumValues()), results: map[string][]*graph.Node{},
		backs: map[string]Back{}, firsts: map[string]program.ID{}, adjoints: map[string]*program.Node{}}
	for i, in := range p.Inputs {
		want, got := ShapeOf(in.Type), inputs[i].Shape()
		if codes := got.DType == shapes.Int8 && want.DType == shapes.Float32; !got.Equal(want) &&
			!(codes && slices.Equal(got.Dimensions, want.Dimensions)) {
			panic(fmt.Errorf("program %q: input %q is %s: got a node of shape %s, want %s",
				p.Name, in.Name, in.Type, got, want))
		}
		e.values[i] = inputs[i]
	}
	for i := range p.Nodes {
		n, id := &p.Nodes[i], program.ID(len(p.Inputs)+i)
		for _, a := range n.Args {
			e.readers[a] = append(e.readers[a], id)
		}
		switch c := n.Attr.Call; {
		case c == nil:
		case c.Of == nil && n.Attr.Output == 0:
			e.firsts[callKey(c, n.Args)] = id
		case c.Of != nil && !c.Adds && len(n.Args) >= len(c.Of.Meaning.Inputs):
			e.adjoints[callKey(c.Of, n.Args[:len(c.Of.Meaning.Inputs)])] = n
		}
	}
	for _, o := range p.Outputs {
		e.readers[o.Value] = append(e.readers[o.Value], -1)
	}
	return e
}

func (e *evaluation) outputs() map[string]*graph.Node {
	for _, n := range e.p.Nodes { // before their backward passes, which sources may join
		if n.Op == program.OpCall && n.Attr.Call.Name == calls.Quantize {
			e.call(n.Attr.Call, n.Args)
		}
	}
	outputs := map[string]*graph.Node{}
	for _, o := range e.p.Outputs {
		outputs[o.Name] = e.value(o.Value)
	}
	return outputs
}

// keeps reports whether a call is lowered by a rule, or computes values again.
func (r Calls) keeps(c *program.Call, recompute string) bool {
	of := c
	if c.Of != nil {
		of = c.Of
	}
	if of.Name == calls.Quantize || ownRule(of.Name) != nil {
		return true
	}
	_, ok := r[of.Name]
	return ok && of.Adjoint == nil || c.Of != nil && of.Name == recompute
}

func (r Calls) adding() (names []string) {
	for name, rule := range r {
		if rule.AddsSum {
			names = append(names, name)
		}
	}
	return names
}

// An evaluation lowers the values of a program that others need, and no more.
type evaluation struct {
	lowering
	rules     Calls
	recompute string
	values    []*graph.Node
	local     []*graph.Node  // this replica's rows of values that are not known as a whole
	readers   [][]program.ID // -1 stands for an output
	// of calls, by callKey: results, what computes gradients, and nodes of the first result and of the
	// adjoint
	results  map[string][]*graph.Node
	backs    map[string]Back
	firsts   map[string]program.ID
	adjoints map[string]*program.Node
}

// A callError is an error that names the call in which it occurred.
type callError struct{ error }

func (e *callError) Unwrap() error { return e.error }

func callKey(c *program.Call, args []program.ID) string { return fmt.Sprintf("%p %v", c, args) }

// asFloat converts codes, which are int8 where a program has floats.
func asFloat(x *graph.Node) *graph.Node {
	if x.DType() == shapes.Int8 {
		return engine.Converted(x, shapes.Float32)
	}
	return x
}

func (e *evaluation) value(id program.ID) *graph.Node {
	if x := e.values[id]; x != nil {
		return x
	}
	n := e.p.Node(id)
	switch n.Op {
	case program.OpCall:
		x := e.call(n.Attr.Call, n.Args)[n.Attr.Output]
		if x == nil || !slices.Equal(x.Shape().Dimensions, n.Type.Shape) {
			panic(&callError{fmt.Errorf("program %q: result %d of %s is %v, want %s", e.p.Name,
				n.Attr.Output, n.Attr.Call.Name, x, n.Type)})
		}
		e.values[id] = x
	case program.OpStopGradient: // gradients are programs
		e.values[id] = e.value(n.Args[0])
	default:
		e.values[id] = e.operation(id, n)
	}
	return e.values[id]
}

// call returns the results of a call.
func (e *evaluation) call(c *program.Call, args []program.ID) []*graph.Node {
	key := callKey(c, args)
	if e.results[key] != nil {
		return e.results[key]
	}
	defer func() {
		if r := recover(); r != nil {
			err := asError(r)
			if _, named := errors.AsType[*callError](err); named {
				panic(r)
			}
			panic(&callError{fmt.Errorf("program %q: %s: %w", e.p.Name, c.Name, err)})
		}
	}()
	var sum *graph.Node
	var results []*graph.Node
	of, operands := c, args
	if c.Adds {
		of, operands, sum = c.Of, args[:len(args)-1], e.value(args[len(args)-1])
	}
	if of.Of != nil {
		results = e.gradients(of, operands, sum)
	} else if results = e.forward(of, operands); sum != nil {
		results = slices.Clone(results)
		results[0] = graph.Add(sum, results[0])
	}
	e.results[key] = results
	return results
}

func (e *evaluation) nodes(args []program.ID) []*graph.Node { return lists.Map(args, e.value) }

func (e *evaluation) forward(c *program.Call, args []program.ID) []*graph.Node {
	key := callKey(c, args)
	if e.results[key] != nil { // a call that adds to the results is another one
		return e.results[key]
	}
	var results []*graph.Node
	rule, call := e.rules[c.Name], Call{c, e.nodes(args), e.short(c, args)}
	var d []Adjoint
	independent := false
	if rule.Both != nil {
		d, independent = e.independent(c, args)
	}
	switch {
	case c.Name == calls.Quantize:
		results = quantize(c, call.Args)
	case ownRule(c.Name) != nil:
		results = ownRule(c.Name)(call)
	case independent:
		var gradients []*graph.Node
		results, gradients = rule.Both(call, d)
		back := e.adjoints[key]
		e.results[callKey(back.Attr.Call, back.Args)] = wanted(back.Attr.Call, gradients)
	default:
		results, e.backs[key] = rule.Forward(call)
	}
	e.results[key] = results
	return results
}

// independent returns the adjoints of a call's results, if the program has its adjoint and these do
// not depend on the results.
func (e *evaluation) independent(c *program.Call, args []program.ID) (d []Adjoint, ok bool) {
	back := e.adjoints[callKey(c, args)]
	if back == nil {
		return nil, false
	}
	seen := map[program.ID]bool{}
	var depends func(id program.ID) bool
	depends = func(id program.ID) bool {
		n := e.p.Node(id)
		if n == nil || seen[id] {
			return false
		}
		seen[id] = true
		return n.Attr.Call == c && slices.Equal(n.Args, args) || slices.ContainsFunc(n.Args, depends)
	}
	if slices.ContainsFunc(back.Args[len(args):], depends) {
		return nil, false
	}
	return e.adjointsOf(back.Attr.Call, back.Args), true
}

// adjointsOf returns the adjoints of a call's results, which its adjoint reads.
func (e *evaluation) adjointsOf(back *program.Call, args []program.ID) (d []Adjoint) {
	for _, o := range back.Of.Meaning.Outputs {
		var a Adjoint
		if at := back.Meaning.Input(autodiff.Prefix + o.Name); at >= 0 {
			a = Adjoint{e, args[at]}
		}
		d = append(d, a)
	}
	return d
}

// wanted picks the results of the adjoint of a call from the gradients of all operands.
func wanted(back *program.Call, gradients []*graph.Node) []*graph.Node {
	return lists.Map(back.Meaning.Outputs, func(o program.Output) *graph.Node {
		return gradients[back.Of.Meaning.Input(o.Name[len(autodiff.Prefix):])]
	})
}

// gradients returns the results of back, the adjoint of a call, and adds sum to the first.
func (e *evaluation) gradients(back *program.Call, args []program.ID,
	sum *graph.Node) (results []*graph.Node) {
	c, n := back.Of, len(back.Of.Meaning.Inputs)
	switch c.Name {
	case calls.Quantize:
		return quantizeBackward(back, lists.Map(e.nodes(args), asFloat))
	case e.recompute:
		all := e.nodes(args)
		in := append(engine.ForRecompute(all[len(all)-1], all[:n]), all[n:]...)
		for _, x := range in {
			(*Source)(nil).AttachTo(x) // what it was computed from is not delayed
		}
		return inOrder(back.Meaning, e.rules.Lower(e.g, back.Meaning, in, e.recompute))
	}
	key, operands := callKey(back, args), args[:n]
	e.forward(c, operands)
	switch of := e.backs[callKey(c, operands)]; {
	case e.results[key] != nil: // it was computed with the results
		return e.results[key]
	case of != nil:
		return wanted(back, of(e.adjointsOf(back, args), sum))
	case e.rules[c.Name].Both != nil:
		_, gradients := e.rules[c.Name].Both(Call{Call: c, Args: e.nodes(operands)},
			e.adjointsOf(back, args))
		return wanted(back, gradients)
	}
	panic(fmt.Errorf("program %q: %s has no gradient", e.p.Name, c.Name))
}

// short reports whether everything that reads the first result of a call rounds it to the device's
// precision.
func (e *evaluation) short(c *program.Call, args []program.ID) bool {
	id, ok := e.firsts[callKey(c, args)]
	return ok && e.rounded(id, false)
}

// rounded reports whether every operation that reads a value rounds it, so that it may be stored
// rounded. It looks through reshapes, slices, and the addition of one row. A slice may also be read
// by calls that do not round: it is never the residual stream.
func (e *evaluation) rounded(id program.ID, part bool) bool {
	return !slices.ContainsFunc(e.readers[id], func(reader program.ID) bool {
		n := e.p.Node(reader)
		if n == nil {
			return true // an output
		}
		switch n.Op {
		case program.OpCall:
			of := n.Attr.Call
			for of.Of != nil {
				of = of.Of
			}
			return !part && !e.rules[of.Name].Rounds
		case program.OpReshape, program.OpSlice:
			return !e.rounded(reader, part || n.Op == program.OpSlice)
		case program.OpAdd:
			other := e.p.TypeOf(n.Args[0])
			if n.Args[0] == id {
				other = e.p.TypeOf(n.Args[1])
			}
			return other.Rank() == 0 || other.Shape[0] != 1 || !e.rounded(reader, part)
		}
		return true
	})
}
