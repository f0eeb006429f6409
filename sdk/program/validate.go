package program

import (
	"cmp"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits bounds the resources of a program. A zero field means its default.
type Limits struct {
	// Nodes is the largest number of nodes; default 4096.
	Nodes int
	// Elements is the largest number of elements of one value; default MaxSize.
	Elements int64
	// Total is the largest number of elements of all values together; default 2^36.
	Total int64
	// Work is the largest number of multiplications in products and
	// factorizations together; default 2^50.
	Work int64
	// Constants is the largest number of constant elements stored; default 2^22.
	Constants int64
	// Linalg allows the factorizations: true for refresh programs.
	Linalg bool
}

// WithDefaults returns the limits with zeros replaced by the defaults.
func (l Limits) WithDefaults() Limits {
	l.Nodes = cmp.Or(l.Nodes, 4096)
	l.Elements = cmp.Or(l.Elements, MaxSize)
	l.Total = cmp.Or(l.Total, 1<<36)
	l.Work = cmp.Or(l.Work, 1<<50)
	l.Constants = cmp.Or(l.Constants, 1<<22)
	return l
}

// Validate checks a program from an untrusted source: that every operation exists,
// operands are defined before they are used, each stated type is the one that
// follows from the operands, names are unique, and nothing exceeds the limits. It
// allocates nothing in proportion to the stated shapes.
func (p *Program) Validate(limits Limits) error {
	v := validator{p: p, limits: limits.WithDefaults()}
	if err := v.signature(); err != nil {
		return err
	}
	for i := range p.Nodes {
		if err := v.node(i); err != nil {
			return p.errorAt(fmt.Sprintf("%%%d = %s", len(p.Inputs)+i, p.Nodes[i].Op), err)
		}
	}
	return v.outputs()
}

// errorAt reports an invalid part, which is named as in the text form.
func (p *Program) errorAt(part string, err error) error {
	return fmt.Errorf("program %q: %s: %w", clip(p.Name), part, err)
}

type validator struct {
	p                                *Program
	limits                           Limits
	total, work, constants, operands int64
}

func (v *validator) signature() error {
	p := v.p
	if len(p.Nodes) > v.limits.Nodes {
		return p.errorAt("nodes", fmt.Errorf("got %d nodes, want at most %d", len(p.Nodes),
			v.limits.Nodes))
	}
	if len(p.Inputs) > v.limits.Nodes || len(p.Outputs) > v.limits.Nodes {
		return p.errorAt("signature", fmt.Errorf("got %d inputs and %d outputs, want at most %d of each",
			len(p.Inputs), len(p.Outputs), v.limits.Nodes))
	}
	if err := checkName(p.Name); err != nil {
		return p.errorAt("name", err)
	}
	seen := map[string]bool{}
	for i, in := range p.Inputs {
		part := fmt.Sprintf("input %d (%q)", i, clip(in.Name))
		if err := cmp.Or(checkNew(in.Name, seen), v.size(in.Type)); err != nil {
			return p.errorAt(part, err)
		}
	}
	return nil
}

func (v *validator) outputs() error {
	p := v.p
	if len(p.Outputs) == 0 {
		return p.errorAt("outputs", fmt.Errorf("there are none"))
	}
	seen := map[string]bool{}
	for i, o := range p.Outputs {
		part := fmt.Sprintf("output %d (%q)", i, clip(o.Name))
		if err := checkNew(o.Name, seen); err != nil {
			return p.errorAt(part, err)
		}
		if o.Value < 0 || int(o.Value) >= p.NumValues() {
			return p.errorAt(part, fmt.Errorf("value %%%d does not exist", o.Value))
		}
	}
	return nil
}

func (v *validator) node(i int) error {
	n := &v.p.Nodes[i]
	defined := len(v.p.Inputs) + i
	if len(n.Args) > v.limits.Nodes {
		return fmt.Errorf("%d operands", len(n.Args))
	}
	// Bounded, because the gradient of a program has operations for each operand.
	if v.operands += int64(len(n.Args)); v.operands > operandsPerNode*int64(v.limits.Nodes) {
		return fmt.Errorf("the operations have more than %d operands in total",
			operandsPerNode*int64(v.limits.Nodes))
	}
	args := make([]Type, len(n.Args))
	for j, id := range n.Args {
		if id < 0 || int(id) >= defined {
			return fmt.Errorf("operand %%%d is not defined before it is used", id)
		}
		args[j] = v.p.TypeOf(id)
	}
	if err := n.Type.check(max(v.limits.Elements, MaxSize)); err != nil {
		return err
	}
	got, err := infer(n.Op, args, n.Attr, n.Type)
	if err != nil {
		return err
	}
	if !got.Equal(n.Type) {
		return fmt.Errorf("states the type %s, but its operands imply %s", n.Type, got)
	}
	if info, _ := n.Op.Info(); info.Class == ClassLinalg && !v.limits.Linalg {
		return fmt.Errorf("factorizations are for refresh programs only")
	}
	v.constants += int64(len(n.Attr.Floats) + len(n.Attr.Ints))
	if v.constants > v.limits.Constants {
		return fmt.Errorf("the constants have more than %d elements in total", v.limits.Constants)
	}
	if f := rows[n.Op].work; f != nil {
		work := f(n, args) // a float does not overflow
		if work > float64(v.limits.Work-v.work) {
			return fmt.Errorf("products and factorizations need more than %d multiplications", v.limits.Work)
		}
		v.work += int64(work)
	}
	return v.size(n.Type)
}

func (v *validator) size(t Type) error {
	if err := t.check(max(v.limits.Elements, MaxSize)); err != nil {
		return err
	}
	if t.Size() > v.limits.Elements {
		return fmt.Errorf("%s has %d elements, want at most %d", t, t.Size(),
			v.limits.Elements)
	}
	if v.total += t.Size(); v.total > v.limits.Total {
		return fmt.Errorf("the values have more than %d elements in total", v.limits.Total)
	}
	return nil
}

// operandsPerNode times the limit on nodes is the limit on the total number of operands.
const operandsPerNode = 16

// MaxName is the largest length, in bytes, of the name of a program, input or output.
const MaxName = 200

func checkName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("the name is empty")
	case len(name) > MaxName:
		return fmt.Errorf("the name is longer than %d bytes", MaxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("the name is not valid UTF-8")
	}
	for _, r := range name {
		if r == ' ' || !unicode.IsPrint(r) || strings.ContainsRune("%,:=()[]{}\"", r) {
			return fmt.Errorf("the name contains %q: use letters, digits and . _ - /", r)
		}
	}
	return nil
}

func checkNew(name string, seen map[string]bool) error {
	if seen[name] {
		return fmt.Errorf("the name is used twice")
	}
	seen[name] = true
	return checkName(name)
}

func clip(name string) string {
	const most = 60
	if len(name) <= most {
		return name
	}
	return strings.ToValidUTF8(name[:most], "?") + "…"
}
