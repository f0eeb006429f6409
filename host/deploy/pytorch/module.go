// Package pytorch writes the programs of plugins as Python modules that need PyTorch alone: a
// quantizer with its gradient, its trained parameters and its state, and the correction of CAGE for
// any optimizer; or an optimizer.
//
// A program is for one shape. A module holds the text of programs for many shapes, each text once:
// where two shapes have programs of the same text, they share it, so that each of them computes
// exactly what the plugin wrote for it. The operations that such a text calls are in
// runtime/operations.py, the classes that use it in runtime/quantizer.py and runtime/optimizer.py.
package pytorch

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"maps"
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

// The widths of matrices for which a module of a quantizer has programs, unless shapes are
// requested: the multiples of 64 up to 8192.
const (
	widthStep = 64
	maxWidth  = 8192
)

// maxClasses limits the number of texts. If there are more for the usual widths, the text depends
// on the width, and shapes must be requested.
const maxClasses = 40

// probedRows are the numbers of rows whose programs are compared to find out whether their text
// depends on it. Programs have such numbers for no other reason.
var probedRows = [2]int{10007, 10009}

// module is a module being written: the texts of its classes, each with the shapes that it is for.
type module struct {
	classes []string
	indices map[string]int // of a class, by its text
	keys    map[string]map[int][]string
	helpers map[string]bool
	refused error // the first refusal of a weight
}

func newModule() *module {
	return &module{indices: map[string]int{}, keys: map[string]map[int][]string{},
		helpers: map[string]bool{"arguments": true}}
}

// add adds a class for a key of the table of a role: a width, a rank or a shape.
func (m *module) add(role, key, text string) {
	index, ok := m.indices[text]
	if !ok {
		index = len(m.classes)
		m.indices[text], m.classes = index, append(m.classes, text)
	}
	if m.keys[role] == nil {
		m.keys[role] = map[int][]string{}
	}
	m.keys[role][index] = append(m.keys[role][index], key)
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

// Quantizer writes a module of a quantizer. get returns the programs for a site; shapes lists the
// matrices that are needed, instead of those of the usual widths.
func Quantizer(
	p Plugin, shapes [][]int, get func(sdk.Role, []int) (spec.Quantizer, error),
) (string, error) {
	m := newModule()
	err := m.quantizers(shapes, get)
	if len(shapes) == 0 && len(m.classes) > maxClasses {
		m = newModule()
	}
	if err != nil {
		return "", err
	}
	if len(m.keys[string(sdk.RoleWeight)]) == 0 {
		return "", cmp.Or(m.refused, errors.New("the programs of the quantizer depend on the shape: "+
			"give the shapes of the weights by --shape ROWSxCOLUMNS (repeatable)"))
	}
	return m.source(p, quantizerSource), nil
}

// quantizers adds the programs for shapes or, if there are none, for the usual widths.
func (m *module) quantizers(
	shapes [][]int, get func(sdk.Role, []int) (spec.Quantizer, error),
) error {
	widths := map[int]bool{}
	for width := widthStep; width <= maxWidth && len(shapes) == 0; width += widthStep {
		widths[width] = true
	}
	for _, shape := range shapes {
		widths[shape[len(shape)-1]] = true
	}
	for _, role := range []sdk.Role{sdk.RoleWeight, sdk.RoleActivation} {
		text := func(shape []int) (string, error) {
			q, err := get(role, shape)
			if err != nil {
				return "", err
			}
			return m.quantizer(q, shape)
		}
		anyRows := map[int]bool{}
		for _, width := range slices.Sorted(maps.Keys(widths)) {
			few, err := text([]int{probedRows[0], width})
			if errors.Is(err, ErrUnsupported) {
				return err
			}
			if role == sdk.RoleWeight {
				m.refused = cmp.Or(m.refused, err)
			}
			if many, _ := text([]int{probedRows[1], width}); err == nil && few == many {
				m.add(string(role), fmt.Sprint(width), few)
				anyRows[width] = true
			}
		}
		for _, shape := range shapes {
			if anyRows[shape[len(shape)-1]] {
				continue
			}
			class, err := text(shape)
			if err == nil {
				m.add(string(role), tuple(shape), class)
			} else if role == sdk.RoleWeight {
				return err
			}
		}
	}
	return nil
}

// Optimizer writes a module of an optimizer. get returns the programs for a tensor; shapes lists
// the parameters that are needed if the programs depend on the shape.
func Optimizer(p Plugin, shapes [][]int, get func([]int) (spec.Optimizer, error)) (string, error) {
	m := newModule()
	text := func(shape []int) (string, error) {
		o, err := get(shape)
		if err != nil {
			return "", err
		}
		return m.optimizer(o, shape)
	}
	anyShape := map[int]bool{}
	for rank, probes := range [][][]int{
		{{}}, {{136}, {184}}, {{136, 184}, {184, 136}, {40, 40}},
	} {
		texts := map[string]bool{}
		for _, shape := range probes {
			class, err := text(shape)
			if errors.Is(err, ErrUnsupported) {
				return "", err
			}
			texts[class] = true
		}
		for class := range texts {
			if anyShape[rank] = len(texts) == 1 && class != ""; anyShape[rank] {
				m.add("", fmt.Sprint(rank), class)
			}
		}
	}
	for _, shape := range shapes {
		if anyShape[len(shape)] {
			continue
		}
		class, err := text(shape)
		if err == nil && class == "" {
			err = fmt.Errorf("the optimizer does not accept a parameter of shape %v", shape)
		}
		if err != nil {
			return "", err
		}
		m.add("", tuple(shape), class)
	}
	if len(m.classes) == 0 {
		return "", errors.New("the programs of the optimizer depend on the shape: " +
			"give the shapes of the parameters by --shape ROWSxCOLUMNS (repeatable)")
	}
	return m.source(p, optimizerSource), nil
}

// class is the body of a class being written.
type class struct {
	m     *module
	shape []int
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
	c.body.WriteString("\n" + newWriter(p, c.shape, c.m.helpers).function(name))
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
func (m *module) quantizer(q spec.Quantizer, shape []int) (string, error) {
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
	c := &class{m: m, shape: shape}
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
func (m *module) optimizer(o spec.Optimizer, shape []int) (string, error) {
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
	c := &class{m: m, shape: shape}
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
	fmt.Fprintf(&s, "\"\"\"%s: %s\n\nWritten by: %s\n\n", p.Name, p.Doc, p.Command)
	s.WriteString("Each class Programs holds programs of the plugin, with one statement for each\n" +
		"operation, whose name and type are beside it; v1, v2 are its values.\n\"\"\"\n\n" +
		"import copy\nimport math\nimport warnings\n\nimport torch\n\n")
	fmt.Fprintf(&s, "NAME = %q\n", p.Name)
	s.WriteString(m.operations())
	for i, text := range m.classes {
		fmt.Fprintf(&s, "\n\nclass Programs%d:\n%s", i, text)
	}
	s.WriteString("\n\nPROGRAMS = {\n")
	for _, role := range slices.Sorted(maps.Keys(m.keys)) {
		indent := "    "
		if role != "" {
			fmt.Fprintf(&s, "    %q: {\n", role)
			indent += "    "
		}
		for _, index := range slices.Sorted(maps.Keys(m.keys[role])) {
			keys := wrapped(indent+"**dict.fromkeys(", m.keys[role][index])
			fmt.Fprintf(&s, "%s, Programs%d),\n", keys, index)
		}
		if role != "" {
			s.WriteString("    },\n")
		}
	}
	s.WriteString("}\n\n\n" + classes)
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
