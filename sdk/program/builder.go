package program

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Builder writes a program. Operations are methods of [Value], so that a formula
// reads from left to right: x.Sub(mean).Div(scale).Round().
//
// The builder keeps the first mistake (incompatible shapes, a value of another builder)
// with the line of the caller. All later operations do nothing, and Build returns the
// mistake, so an author checks only once, at the end.
type Builder struct {
	p    Program
	err  error
	memo map[string]ID    // scalar constants, so that a literal used twice is one node
	seen map[string]Value // of a simplifier: the values of nodes by [key]; else nil
}

// NewBuilder starts an empty program.
func NewBuilder(name string) *Builder {
	return &Builder{p: Program{Name: name}, memo: map[string]ID{}}
}

// Value is a value of the program under construction. The zero Value means
// "absent"; using it as an operand is an error.
type Value struct {
	b  *Builder
	id ID
}

// Valid reports whether v is present.
func (v Value) Valid() bool { return v.b != nil }

// Builder returns the builder that v belongs to. The zero Value gets a builder of its own that
// holds the mistake, so that the mistake surfaces where the result is used or built.
func (v Value) Builder() *Builder {
	if v.b != nil {
		return v.b
	}
	b := NewBuilder("absent")
	b.fail(errors.New("operation on an absent value: a zero Value, such as that of a wrong map key"))
	return b
}

// Type returns the value's type, or the zero Type if the value is absent or its construction
// failed.
func (v Value) Type() Type {
	if v.b == nil || v.b.err != nil {
		return Type{}
	}
	return v.b.p.TypeOf(v.id).clone()
}

// Shape returns the value's dimensions.
func (v Value) Shape() []int { return v.Type().Shape }

// Input declares the next argument.
func (b *Builder) Input(name string, t Type) Value {
	if b.err != nil {
		return Value{b: b}
	}
	if err := cmp.Or(checkName(name), t.check(b.limits().Elements)); err != nil {
		return b.fail(fmt.Errorf("input %q: %w", clip(name), err))
	}
	if len(b.p.Nodes) > 0 {
		return b.fail(fmt.Errorf("input %q: declared after the first operation", clip(name)))
	}
	if b.p.Input(name) >= 0 {
		return b.fail(fmt.Errorf("input %q: declared twice", clip(name)))
	}
	b.p.Inputs = append(b.p.Inputs, Input{name, t.clone()})
	return Value{b, ID(len(b.p.Inputs) - 1)}
}

// Output names v as a result. The order of calls is the order of outputs.
func (b *Builder) Output(name string, v Value) {
	if b.err != nil {
		return
	}
	if err := b.CheckValue(v); err != nil {
		b.fail(fmt.Errorf("output %q: %w", clip(name), err))
		return
	}
	b.p.Outputs = append(b.p.Outputs, Output{name, v.id})
}

// Err returns the first mistake so far.
func (b *Builder) Err() error { return b.err }

// limits returns the limits of the program. Those of a simplifier, which hosts use, have no bound
// on sizes: executors need not compute all values of calls.
func (b *Builder) limits() Limits {
	l := Limits{Nodes: 1 << 20, Linalg: true}
	if b.seen != nil {
		l.Elements, l.Total, l.Work = saturated-1, math.MaxInt64, math.MaxInt64
		l.Constants = math.MaxInt64
	}
	return l.WithDefaults()
}

// Build finishes the program: unused nodes are dropped and the result is validated under the
// default limits with factorizations allowed. The builder must not be used afterwards.
func (b *Builder) Build() (*Program, error) {
	if b.err != nil {
		return nil, b.err
	}
	p := b.p.prune()
	if err := p.Validate(b.limits()); err != nil {
		return nil, err
	}
	return p, nil
}

// Apply adds one operation, with attributes and type as in a [Node]; if the type can be
// inferred from the operands, t may be zero. It is for tools that transform programs;
// authors of plugins use the methods of [Value].
func (b *Builder) Apply(op Op, attr Attr, t Type, args ...Value) Value {
	if b.err != nil {
		return Value{b: b}
	}
	ids := make([]ID, len(args))
	types := make([]Type, len(args))
	for i, a := range args {
		if err := b.CheckValue(a); err != nil {
			return b.fail(fmt.Errorf("%s: operand %d %w", op, i, err))
		}
		ids[i], types[i] = a.id, b.p.TypeOf(a.id)
	}
	var k string
	if b.seen != nil {
		k = key(op, attr, t, ids)
		if v, ok := b.seen[k]; ok {
			return v
		}
	}
	most := b.limits().Elements
	err := Type{cmp.Or(t.DType, Float), t.Shape}.check(most) // first: infer multiplies sizes
	if err == nil {
		t, err = infer(op, types, attr, t)
	}
	if err == nil {
		err = t.check(most)
	}
	if err != nil {
		return b.fail(fmt.Errorf("%s: %w", op, err))
	}
	b.p.Nodes = append(b.p.Nodes, Node{Op: op, Args: ids, Type: t.clone(), Attr: attr.clone()})
	v := Value{b, ID(b.p.NumValues() - 1)}
	if b.seen == nil {
		return v
	}
	// If a simpler value replaces the node, Build drops it as unused.
	if simpler, ok := b.simplify(v.node(), t, args); ok && simpler.Type().Equal(t) {
		v = simpler
	}
	b.seen[k] = v
	return v
}

// CheckValue returns an error unless v is present and belongs to this builder.
func (b *Builder) CheckValue(v Value) error {
	switch {
	case v.b == nil:
		return errors.New("is absent: a zero Value, such as that of a wrong map key")
	case v.b != b && v.b.err != nil: // made from an absent value: its mistake came first
		return fmt.Errorf("comes from an operation that failed: %w", v.b.err)
	case v.b != b:
		return errors.New("belongs to another program")
	}
	return nil
}

// Fail makes err the mistake that Build returns, with the line of the caller, unless there has been
// one before. Packages that write parts of programs use it to report invalid arguments.
func (b *Builder) Fail(err error) { b.fail(err) }

// fail keeps the first mistake, with the line of the author's code that made it.
func (b *Builder) fail(err error) Value {
	if b.err == nil {
		b.err = fmt.Errorf("program %q: %w%s", clip(b.p.Name), err, callSite())
	}
	return Value{b: b}
}

// callSite returns the file and line of the innermost frame outside the functions that write parts
// of programs for authors, or "" if it is in package sdk, whose lines do not help an author.
func callSite() string {
	const builds = "cage/sdk."
	writers := []string{"sdk/program.", "sdk/program/transform.", "sdk/microscaling.",
		builds + "BiasCorrection"}
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		f, more := frames.Next()
		ours := slices.ContainsFunc(writers,
			func(name string) bool { return strings.Contains(f.Function, name) })
		if !ours && strings.Contains(f.Function, builds) {
			return ""
		}
		if f.File != "" && (!ours || strings.HasSuffix(f.File, "_test.go")) {
			return fmt.Sprintf(" (%s:%d)", filepath.Base(f.File), f.Line)
		}
		if !more {
			return ""
		}
	}
}

func (p *Program) prune() *Program {
	live, first := make([]bool, p.NumValues()), len(p.Inputs)
	for _, o := range p.Outputs {
		live[o.Value] = true
	}
	for i, n := range slices.Backward(p.Nodes) {
		if live[first+i] {
			for _, a := range n.Args {
				live[a] = true
			}
		}
	}
	out := &Program{Name: p.Name, Inputs: p.Inputs}
	renumbered := make([]ID, p.NumValues())
	for i := range first {
		renumbered[i] = ID(i)
	}
	for i, n := range p.Nodes {
		if live[first+i] {
			n.Args = slices.Clone(n.Args)
			for j, a := range n.Args {
				n.Args[j] = renumbered[a]
			}
			renumbered[first+i] = ID(out.NumValues())
			out.Nodes = append(out.Nodes, n)
		}
	}
	for _, o := range p.Outputs {
		out.Outputs = append(out.Outputs, Output{o.Name, renumbered[o.Value]})
	}
	return out
}
