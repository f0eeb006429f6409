package pytorch

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
)

// writer writes one program as a Python function.
type writer struct {
	p       *program.Program
	helpers map[string]bool // gets the functions of runtime/operations.py that the text calls
}

// node is a node of a program that is being written.
type node struct {
	*program.Node
	w *writer
}

// function writes the program as a static method with the given name. Its arguments are the inputs
// of the program, and it returns a tuple of the outputs, both in their order.
func (w *writer) function(name string) string {
	args := lists.Map(w.p.Inputs, func(in program.Input) string { return identifier(in.Name) })
	var body strings.Builder
	for i := range w.p.Nodes {
		id := program.ID(len(w.p.Inputs) + i)
		if _, ok := w.number(id); ok {
			continue
		}
		n := node{&w.p.Nodes[i], w}
		line := fmt.Sprintf("        v%d = %s", id, operations[n.Op](n))
		if comment := "  # " + n.Op.String() + ": " + n.typeText(); len(line)+len(comment) <= 100 {
			line += comment
		} else {
			line = "        " + strings.TrimSpace(comment) + "\n" + line
		}
		body.WriteString(line + "\n")
	}
	results := lists.Map(w.p.Outputs, func(o program.Output) string { return w.tensor(o.Value) })
	text := body.String() + "        return " + list(results) + "\n"
	head := fmt.Sprintf("    @staticmethod\n    def %s(%s):\n", name, strings.Join(args, ", "))
	if strings.Contains(text, "device") {
		head += "        device = " + args[0] + ".device\n"
	}
	return head + text
}

// list writes elements of a tuple.
func list(elements []string) string {
	if len(elements) == 1 {
		return elements[0] + ","
	}
	return strings.Join(elements, ", ")
}

// identifier turns the name of an input or output into a Python identifier.
func identifier(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return r
		}
		return '_'
	}, name)
}

// number returns the text of a scalar constant, which is written where it is used, and whether the
// value is one.
func (w *writer) number(id program.ID) (string, bool) {
	n := w.p.Node(id)
	if n == nil || n.Op != program.OpConstant || !n.Type.IsScalar() {
		return "", false
	}
	return elements(n)[0], true
}

func elements(n *program.Node) []string {
	var all []string
	for _, v := range n.Attr.Floats {
		all = append(all, float(v))
	}
	for _, v := range n.Attr.Ints {
		switch {
		case n.Type.DType != program.Bool:
			all = append(all, strconv.FormatInt(v, 10))
		case v == 0:
			all = append(all, "False")
		default:
			all = append(all, "True")
		}
	}
	return all
}

func float(v float64) string {
	switch {
	case math.IsNaN(v):
		return "math.nan"
	case math.IsInf(v, 1):
		return "math.inf"
	case math.IsInf(v, -1):
		return "-math.inf"
	}
	text := strconv.FormatFloat(v, 'g', -1, 64)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return text
}

// tensor returns the text of a value that has to be a tensor.
func (w *writer) tensor(id program.ID) string {
	if int(id) < len(w.p.Inputs) {
		return identifier(w.p.Inputs[id].Name)
	}
	if number, ok := w.number(id); ok {
		return fmt.Sprintf("torch.full((), %s, dtype=%s, device=device)",
			number, dtypes[w.p.TypeOf(id).DType])
	}
	return fmt.Sprintf("v%d", id)
}

func (n node) tensor(i int) string { return n.w.tensor(n.Args[i]) }

// tensors writes all operands as tensors.
func (n node) tensors() []string { return lists.Map(n.Args, n.w.tensor) }

// literal reports whether operand i is written as a number.
func (n node) literal(i int) bool {
	_, ok := n.w.number(n.Args[i])
	return ok
}

// arg returns the text of operand i, which may be a number.
func (n node) arg(i int) string {
	if text, ok := n.w.number(n.Args[i]); ok {
		return text
	}
	return n.tensor(i)
}

// call writes a call of a function of runtime/operations.py.
func (n node) call(name string, args ...string) string {
	n.w.helpers[name] = true
	return name + "(" + strings.Join(args, ", ") + ")"
}

var dtypes = map[program.DType]string{program.Float: "torch.float32",
	program.Int: "torch.int32", program.Uint: "torch.int64", program.Bool: "torch.bool"}

func (n node) dtype() string { return dtypes[n.Type.DType] }

// wrap reduces the result of an operation on unsigned integers modulo 2³².
func (n node) wrap(text string) string {
	if n.Type.DType == program.Uint {
		return "(" + text + ") & 0xFFFFFFFF"
	}
	return text
}

// dims writes the shape of the result.
func (n node) dims() string { return tuple(n.Type.Shape) }

func (n node) typeText() string {
	if n.Type.IsScalar() {
		return n.Type.DType.String()
	}
	return n.Type.DType.String() + strings.Replace(n.dims(), ",)", ")", 1)
}

func tuple(numbers []int) string {
	return "(" + list(strings.Fields(strings.Trim(fmt.Sprint(numbers), "[]"))) + ")"
}

func (n node) constant() string {
	list := elements(n.Node)
	if len(list) == 1 {
		return fmt.Sprintf("torch.full(%s, %s, dtype=%s, device=device)",
			n.dims(), list[0], n.dtype())
	}
	var text strings.Builder
	for i, e := range list {
		if i%8 == 0 {
			text.WriteString("\n            ")
		}
		text.WriteString(e + ", ")
	}
	return fmt.Sprintf("torch.tensor((%s\n        ), dtype=%s, device=device).reshape(%s)",
		text.String(), n.dtype(), n.dims())
}

func (n node) convert() string {
	x, from, to := n.tensor(0), n.w.p.TypeOf(n.Args[0]).DType, n.Type.DType
	switch {
	case from == to:
		return x
	case to == program.Bool:
		return x + " != 0"
	case to == program.Uint:
		return n.wrap(x + ".to(torch.int64)")
	}
	return x + ".to(" + n.dtype() + ")"
}

func (n node) bitcast() string {
	x, from, to := n.tensor(0), n.w.p.TypeOf(n.Args[0]).DType, n.Type.DType
	if from == program.Float && to != program.Float {
		x += ".view(torch.int32)"
		from = program.Int
	}
	switch {
	case from == to:
		return x
	case to == program.Uint:
		return n.wrap(x + ".to(torch.int64)")
	case from == program.Uint:
		x += ".to(torch.int32)"
	}
	if to == program.Float {
		return x + ".view(torch.float32)"
	}
	return x
}

func (n node) broadcast() string {
	from := n.w.p.TypeOf(n.Args[0]).Shape
	shape := slices.Repeat([]int{1}, n.Type.Rank())
	for i, axis := range n.Attr.Axes {
		shape[axis] = from[i]
	}
	return fmt.Sprintf("%s.reshape(%s).expand(%s)", n.tensor(0), tuple(shape), n.dims())
}

func (n node) slice() string {
	from := n.w.p.TypeOf(n.Args[0]).Shape
	list := make([]string, len(from))
	for i, d := range from {
		start, limit, stride := n.Attr.Start[i], n.Attr.Limit[i], n.Attr.Stride[i]
		if start > 0 {
			list[i] = strconv.Itoa(start)
		}
		list[i] += ":"
		if limit < d {
			list[i] += strconv.Itoa(limit)
		}
		if stride > 1 {
			list[i] += ":" + strconv.Itoa(stride)
		}
	}
	return n.tensor(0) + "[" + strings.Join(list, ", ") + "]"
}

// dot writes a product as an Einstein summation.
func (n node) dot() string {
	next := 'a'
	letters := func(rank int) []rune { return make([]rune, rank) }
	left := letters(n.w.p.TypeOf(n.Args[0]).Rank())
	right := letters(n.w.p.TypeOf(n.Args[1]).Rank())
	pair := func(l, r []int) (list []rune) {
		for i := range l {
			left[l[i]], right[r[i]] = next, next
			list = append(list, next)
			next++
		}
		return list
	}
	result := pair(n.Attr.LhsBatch, n.Attr.RhsBatch)
	pair(n.Attr.LhsContract, n.Attr.RhsContract)
	for _, side := range [][]rune{left, right} {
		for i, letter := range side {
			if letter == 0 {
				side[i] = next
				result = append(result, next)
				next++
			}
		}
	}
	return fmt.Sprintf("torch.einsum(%q, %s, %s)",
		string(left)+","+string(right)+"->"+string(result), n.tensor(0), n.tensor(1))
}
