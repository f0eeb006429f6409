// Package pytorch writes the programs of plugins as Python modules that need PyTorch alone: a
// quantizer with its gradient, its trained parameters and its state, and the correction of CAGE for
// any optimizer; or an optimizer.
//
// A plugin may write another program for each shape, so a module has those of the requested shapes
// alone, and refuses others when it runs. The operations that programs call are in
// runtime/operations.py, the classes that use programs in runtime/quantizer.py and
// runtime/optimizer.py.
package pytorch

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/transform"
	"github.com/cage-qat/cage/sdk/spec"
)

//go:embed runtime/operations.py
var operationsSource string

//go:embed runtime/quantizer.py
var quantizerSource string

//go:embed runtime/optimizer.py
var optimizerSource string

// Plugin identifies the plugin that a module is written from.
type Plugin struct {
	Name    string
	Doc     string // one line
	Command string // the command that writes the module
}

// ErrUnsupported is wrapped by errors about what a module for PyTorch cannot do.
var ErrUnsupported = errors.New("has no form in PyTorch")

func unsupported(what string) error { return fmt.Errorf("%s, which %w", what, ErrUnsupported) }

// errNoShapes is returned for a module without shapes.
var errNoShapes = errors.New("a module has programs for the shapes that it is written with: want " +
	"--shape ROWSxCOLUMNS (repeatable) for each weight, for activations their tokens and width")

// module is a module being written: the texts of its classes, each once, and its table of programs.
type module struct {
	classes []string
	table   strings.Builder
	helpers map[string]bool
}

func newModule() *module { return &module{helpers: map[string]bool{"arguments": true}} }

// add adds a class to the table of programs under a key.
func (m *module) add(key, class string) {
	index := slices.Index(m.classes, class)
	if index < 0 {
		index, m.classes = len(m.classes), append(m.classes, class)
	}
	fmt.Fprintf(&m.table, "    %s: Programs%d,\n", key, index)
}

// Site returns the site of a matrix, for the programs of a module.
func Site(role sdk.Role, shape []int, values sdk.Values) sdk.Site {
	site := sdk.Site{Role: role, Name: "linear", Layers: 1, Shape: shape, Values: values}
	if role != sdk.RoleWeight {
		site.Context = shape[0]
	}
	return site
}

// Tensor returns the parameter of the given shape, for the programs of a module.
func Tensor(shape []int, values sdk.Values) sdk.Tensor {
	role := sdk.TensorMatrix
	if len(shape) == 1 {
		role = sdk.TensorVector
	}
	return sdk.Tensor{Name: "linear", Role: role, Shape: shape, Values: values}
}

// Quantizer writes a module of a quantizer for matrices of the given shapes. get returns the
// programs for a site. If it refuses some with an [*sdk.Refusal], the module has the reason.
func Quantizer(
	p Plugin, shapes [][]int, get func(sdk.Role, []int) (spec.Quantizer, error),
) (string, error) {
	m := newModule()
	refused := errNoShapes
	for _, role := range []sdk.Role{sdk.RoleWeight, sdk.RoleActivation} {
		for _, shape := range shapes {
			key := fmt.Sprintf("(%q, %s)", role, tuple(shape))
			q, err := get(role, shape)
			if refusal, ok := errors.AsType[*sdk.Refusal](err); ok {
				fmt.Fprintf(&m.table, "    %s: %q,\n", key, refusal.Error())
				refused = err
				continue
			}
			if err != nil {
				return "", err
			}
			class, err := m.quantizer(q)
			if err != nil {
				return "", err
			}
			m.add(key, class)
		}
	}
	if len(m.classes) == 0 {
		return "", refused
	}
	return m.source(p, quantizerSource), nil
}

// Optimizer writes a module of an optimizer for parameters of the given shapes. get returns the
// programs for a tensor.
func Optimizer(p Plugin, shapes [][]int, get func([]int) (spec.Optimizer, error)) (string, error) {
	m := newModule()
	if len(shapes) == 0 {
		return "", errNoShapes
	}
	for _, shape := range append(shapes, nil) { // nil: trained parameters may be scalars
		o, err := get(shape)
		if _, ok := errors.AsType[*sdk.Refusal](err); ok && shape == nil {
			continue
		}
		if err != nil {
			return "", err
		}
		switch class, err := m.optimizer(o); {
		case err != nil:
			return "", err
		case class != "":
			m.add(tuple(shape), class)
		case shape != nil:
			return "", fmt.Errorf("the optimizer does not accept a parameter of shape %v", shape)
		}
	}
	return m.source(p, optimizerSource), nil
}

// class is the body of a class being written.
type class struct {
	m     *module
	lists strings.Builder
	body  strings.Builder
}

// list adds a tuple of names, as the class attribute with the given name.
func (c *class) list(name string, elements []string) {
	quoted := lists.Map(elements, func(e string) string { return strconv.Quote(identifier(e)) })
	c.lists.WriteString(wrapped("    "+name+" = ", quoted) + "\n")
}

// function adds a program as a method.
func (c *class) function(name string, p *program.Program) {
	c.body.WriteString("\n" + (&writer{p, c.m.helpers}).function(name))
}

func (c *class) text() string { return c.lists.String() + c.body.String() }

func outputNames(p *program.Program) []string {
	if p == nil {
		return nil
	}
	return lists.Map(p.Outputs, func(o program.Output) string { return o.Name })
}

func prefixed(prefix string, list []spec.Tensor) []string {
	return lists.Map(list, func(t spec.Tensor) string { return prefix + t.Name })
}

// quantizer writes the class of a quantizer's programs.
func (m *module) quantizer(q spec.Quantizer) (string, error) {
	switch {
	case q.SearchEvery > 0:
		return "", unsupported("the quantizer searches for its state")
	case q.Calibrated():
		return "", unsupported("the quantizer starts from statistics of columns")
	}
	parts, err := q.Split()
	if err != nil {
		return "", err
	}
	c := &class{m: m}
	saved := lists.Map(parts.Residuals, func(r autodiff.Residual) string { return r.Name })
	gradients := lists.Map(parts.Backward.Outputs, func(o program.Output) string {
		return strings.TrimPrefix(o.Name, autodiff.Prefix)
	})
	var draws []string
	for _, name := range []string{spec.InputNoise, spec.InputSharedNoise} {
		if q.HasInput(name) {
			draws = append(draws, name)
		}
	}
	evaluate, err := results(q.ForEvaluation().Program)
	if err != nil {
		return "", err
	}
	c.list("SAVED", saved)
	c.list("GRADIENTS", gradients)
	c.list("TRAINED", prefixed(spec.TrainedPrefix, q.Trained))
	c.list("STATE", prefixed(spec.KeptPrefix, q.State))
	c.list("DRAWS", draws)
	c.function("forward", parts.Forward)
	c.function("backward", parts.Backward)
	c.function("evaluate", evaluate)
	for name, p := range q.Programs() {
		if name == "init" || name == "init_state" || name == "next" {
			c.function(name, p)
		}
	}
	for _, t := range q.Trained {
		if t.Constrain != nil {
			c.function("constrain_"+identifier(spec.TrainedPrefix+t.Name), t.Constrain)
		}
	}
	return c.text(), nil
}

// results returns a quantizer's program without what serves its gradient: it returns value, codes
// and scale.
func results(p *program.Program) (*program.Program, error) {
	var outputs []program.Output
	for _, name := range []string{spec.OutputValue, spec.OutputCodes, spec.OutputScale} {
		if id, ok := p.Output(name); ok {
			outputs = append(outputs, program.Output{Name: name, Value: id})
		}
	}
	return transform.Extract(p, p.Name, transform.Arguments(p), outputs)
}

// stored are the types of PyTorch in which state is stored.
var stored = map[spec.Storage]string{spec.StoreFloat32: "torch.float32",
	spec.StoreBFloat16: "torch.bfloat16", spec.StoreInt8: "torch.int8",
	spec.StoreUint8: "torch.uint8"}

// optimizer writes the class of an optimizer's programs, or "" if it does not accept the tensor.
func (m *module) optimizer(o spec.Optimizer) (string, error) {
	switch {
	case !o.Accepts:
		return "", nil
	case o.Opaque:
		return "", unsupported("the optimizer computes in its own process")
	case o.ProbeDue.First > 0:
		return "", unsupported("the optimizer takes a second gradient")
	case o.Collect != nil:
		return "", unsupported("the optimizer sums over tensors")
	case o.Evaluate != nil:
		return "", unsupported("the optimizer evaluates other weights than it trains")
	case o.Rounded != spec.StoreFloat32:
		return "", unsupported("the optimizer rounds weights to bfloat16")
	}
	c := &class{m: m}
	var draws, types []string
	if o.HasInput(spec.InputNoise) {
		draws = []string{spec.InputNoise}
	}
	for _, t := range o.State {
		if t.Storage != spec.StoreFloat32 {
			types = append(types,
				fmt.Sprintf("%q: %s", identifier(spec.StatePrefix+t.Name), stored[t.Storage]))
		}
	}
	c.list("STATE", prefixed(spec.StatePrefix, o.State))
	c.lists.WriteString("    STORED = {" + strings.Join(types, ", ") + "}\n")
	c.list("DRAWS", draws)
	c.lists.WriteString(fmt.Sprintf("    DUE = (%d, %d, %d)\n", o.Due.First, o.Due.Next, o.Due.Every))
	c.list("UPDATED", outputNames(o.Update)[1:]) // after the direction
	c.list("OBSERVED", outputNames(o.Observe))
	c.list("FIRST_REFRESHED", outputNames(o.FirstRefresh))
	c.list("REFRESHED", outputNames(o.Refresh))
	for name, p := range o.Programs() {
		c.function(name, p)
	}
	return c.text(), nil
}

// operations returns the functions that the classes call.
func (m *module) operations() string {
	var s strings.Builder
	for _, function := range strings.SplitAfter("\n"+operationsSource, "\n\n\n") {
		name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimLeft(function, "\n"), "def "), "(")
		if m.helpers[name] || name == "finite_matrices" &&
			(m.helpers["qr"] || m.helpers["eigh_values"] || m.helpers["eigh_vectors"]) {
			s.WriteString("\n\n" + strings.Trim(function, "\n") + "\n")
		}
	}
	return s.String()
}

// source writes the whole module.
func (m *module) source(p Plugin, classes string) string {
	var s strings.Builder
	escaped := func(text string) string {
		text = strconv.Quote(text)
		return text[1 : len(text)-1]
	}
	fmt.Fprintf(&s, "\"\"\"%s\n\nWritten by: %s\n\n",
		escaped(p.Name+": "+p.Doc), escaped(p.Command))
	s.WriteString("Each class Programs holds programs of the plugin, with one statement for each\n" +
		"operation, whose name and type are beside it; v1, v2 are its values.\n\"\"\"\n\n" +
		"import copy\nimport math\nimport warnings\n\nimport torch\n\n")
	fmt.Fprintf(&s, "NAME = %q\n", p.Name)
	s.WriteString(m.operations())
	for i, text := range m.classes {
		fmt.Fprintf(&s, "\n\nclass Programs%d:\n%s", i, text)
	}
	s.WriteString("\n\nPROGRAMS = {\n" + m.table.String() + "}\n\n\n" + classes)
	return s.String()
}

// wrapped writes a tuple after a prefix, in lines of at most 100 columns.
func wrapped(prefix string, elements []string) string {
	text := prefix + "("
	indent := strings.Repeat(" ", len(prefix)+1)
	column := len(text)
	for i, e := range elements {
		if i < len(elements)-1 || i == 0 {
			e += ","
		}
		if column+len(e) > 90 {
			text, column = strings.TrimRight(text, " ")+"\n"+indent, len(indent)
		}
		if i < len(elements)-1 {
			e += " "
		}
		text += e
		column += len(e)
	}
	return text + ")"
}
