package spec

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/cage-qat/cage/sdk/program"
)

// Tensor describes a float tensor that is carried from step to step: a state tensor of
// an optimizer or a quantizer, or a trained parameter of a quantizer.
type Tensor struct {
	Name  string
	Shape []int
	// Shared and Constrain are for trained parameters only. Shared is the name under which
	// sites share the parameter (Sharer); empty means that it is not shared. Constrain maps
	// the value after an update to the point of the constraint set that replaces it
	// (Constrained); nil means no constraint.
	Shared    string
	Constrain *program.Program
	// Storage is the type in which it is stored between programs; empty means float32.
	Storage Storage
	// Maximum applies only to a quantizer's state: the next state is reduced over micro-batches and
	// replicas by the maximum instead of the mean (Maximal).
	Maximum bool
}

// At returns the global name of a trained parameter for a site, which is a weight or an activation.
// Sites that share the parameter get the same name.
func (t Tensor) At(site string) string {
	if t.Shared != "" {
		return "quantizer.shared." + t.Shared
	}
	return "quantizer." + site + "." + t.Name
}

func float(name string, shape ...int) program.Input {
	return program.Input{Name: name, Type: program.FloatType(shape...)}
}

func ports(prefix string, list []Tensor) (out []program.Input) {
	for _, s := range list {
		out = append(out, float(prefix+s.Name, s.Shape...))
	}
	return out
}

// MaxTensors is the largest number of state tensors of a tensor or a site, and of trained
// parameters of a site.
const MaxTensors = 1024

// listRules holds the validity rules for a list of tensors. If float32 is not empty, tensors must
// be stored as float32; its text names what requires that.
type listRules struct {
	what             string
	trained, maximum bool
	float32          string
}

// check verifies a list. It must be sorted by name, so that equal sets give equal lists.
func (r listRules) check(list []Tensor) error {
	if len(list) > MaxTensors {
		return fmt.Errorf("got %d %ss, want at most %d: combine them into fewer, larger ones",
			len(list), r.what, MaxTensors)
	}
	for i, s := range list {
		if s.Name == "" {
			return fmt.Errorf("%s %d has no name", r.what, i)
		}
		if err := float(s.Name, s.Shape...).Check(); err != nil {
			return fmt.Errorf("%s %d (%.60q): %w", r.what, i, s.Name, err)
		}
		switch {
		case !slices.Contains([]Storage{StoreFloat32, StoreInt8, StoreUint8, StoreBFloat16}, s.Storage):
			return fmt.Errorf("%s %s is stored as %q: use %s, %s or %s, or nothing for float32",
				r.what, s.Name, s.Storage, StoreInt8, StoreUint8, StoreBFloat16)
		case i > 0 && list[i-1].Name == s.Name:
			return fmt.Errorf("%s %s is listed twice", r.what, s.Name)
		case i > 0 && list[i-1].Name > s.Name:
			return fmt.Errorf("%ss are not sorted by name", r.what)
		case !r.trained && (s.Shared != "" || s.Constrain != nil):
			return fmt.Errorf("%s %s is shared or constrained: only trained parameters of quantizers can be",
				r.what, s.Name)
		case !r.maximum && s.Maximum:
			return fmt.Errorf("%s %s is a maximum: only state of quantizers can be", r.what, s.Name)
		case r.float32 != "" && s.Storage != StoreFloat32:
			return fmt.Errorf("%s is stored as %s: %s must be stored as float32",
				s.Name, s.Storage, r.float32)
		case s.Shared != "": // it becomes a part of the names of tensors in checkpoints
			if err := float(s.Shared).Check(); err != nil {
				return fmt.Errorf("trained parameter %s is shared as %.60q: %w", s.Name, s.Shared, err)
			}
		}
	}
	return nil
}

// signature holds the required inputs and outputs of one of an answer's programs.
type signature struct {
	name            string
	program         *program.Program
	wanted          bool // whether there must be a program
	inputs, outputs []program.Input
	// optional lists the inputs that follow, each of which a program has only if it uses it.
	optional []program.Input
	// when is the condition under which the program is required; empty means always.
	when string
	// some allows any nonempty subset of the outputs.
	some bool
	// factorizes allows factorizations.
	factorizes bool
}

// check compares a valid program with the signature.
func (s signature) check() error {
	p := s.program
	switch {
	case p == nil && !s.wanted:
		return nil
	case p == nil && s.when == "":
		return fmt.Errorf("the %s program is absent", s.name)
	case (p != nil) != s.wanted:
		return fmt.Errorf("the %s program is required exactly when %s", s.name, s.when)
	}
	if err := s.checkInputs(); err != nil {
		return err
	}
	rest := s.outputs
	for _, o := range p.Outputs {
		i := slices.IndexFunc(rest, func(want program.Input) bool { return want.Name == o.Name })
		if i < 0 || i > 0 && !s.some {
			return s.wrongOutputs()
		}
		if t := p.TypeOf(o.Value); !t.Equal(rest[i].Type) {
			return fmt.Errorf("%s: output %s is %s, want %s", s.name, o.Name, t, rest[i].Type)
		}
		rest = rest[i+1:]
	}
	if len(rest) > 0 && !s.some {
		return s.wrongOutputs()
	}
	return s.checkOps()
}

func (s signature) checkInputs() error {
	same := func(a, b program.Input) bool { return a.Name == b.Name && a.Type.Equal(b.Type) }
	n := min(len(s.program.Inputs), len(s.inputs))
	first, rest, optional := s.program.Inputs[:n], s.program.Inputs[n:], s.optional
	for len(rest) > 0 && len(optional) > 0 {
		if same(rest[0], optional[0]) {
			rest = rest[1:]
		}
		optional = optional[1:]
	}
	if len(rest) == 0 && slices.EqualFunc(first, s.inputs, same) {
		return nil
	}
	text := func(list []program.Input) string {
		parts := make([]string, len(list))
		for i, in := range list {
			parts[i] = in.Name + ": " + in.Type.String()
		}
		return strings.Join(parts, ", ")
	}
	if len(s.optional) > 0 {
		return fmt.Errorf("the %s program must take %s, and may take %s after them, in this order",
			s.name, text(s.inputs), text(s.optional))
	}
	return fmt.Errorf("the %s program must take %s", s.name, text(s.inputs))
}

func (s signature) wrongOutputs() error {
	names := make([]string, len(s.outputs))
	for i, o := range s.outputs {
		names[i] = o.Name
	}
	switch {
	case len(names) == 0:
		return fmt.Errorf("got program %s, but the plugin has no state for it to return", s.name)
	case s.some:
		return fmt.Errorf("the %s program must return one or more of %s, in this order",
			s.name, strings.Join(names, ", "))
	}
	return fmt.Errorf("the %s program must return %s", s.name, strings.Join(names, ", "))
}

func (s signature) checkOps() error {
	for i := range s.program.Nodes {
		if info, _ := s.program.Nodes[i].Op.Info(); info.Class == program.ClassLinalg && !s.factorizes {
			return fmt.Errorf("%s: %s: factorizations are for refresh programs only", s.name, info.Name)
		}
	}
	return nil
}

func checkAll(list []signature) error {
	for _, s := range list {
		if err := s.check(); err != nil {
			return err
		}
	}
	return nil
}

func haveInput(name string, programs ...*program.Program) bool {
	return slices.ContainsFunc(programs, func(p *program.Program) bool {
		return p != nil && p.Input(name) >= 0
	})
}

// named is one of the programs of an answer; present yields those that are not nil.
type named struct {
	name    string
	program *program.Program
}

func present(list []named) iter.Seq2[string, *program.Program] {
	return func(yield func(string, *program.Program) bool) {
		for _, n := range list {
			if n.program != nil && !yield(n.name, n.program) {
				return
			}
		}
	}
}

// Hashes returns the hashes of the programs of an answer, by their names.
func Hashes(programs iter.Seq2[string, *program.Program]) map[string]string {
	hashes := map[string]string{}
	for name, p := range programs {
		hashes[name] = p.Hash()
	}
	return hashes
}
