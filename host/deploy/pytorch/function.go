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
	p *program.Program
	// shape is that of the tensor for which the program was requested. Where a number of the
	// program follows from it, the text has names in place of the number, so that programs for other
	// shapes may have the same text. Whether they do is compared, not assumed.
	shape     []int
	names     []string        // of the axes of the tensor
	size      int             // the number of its elements
	like      string          // an input that has its shape; "" if there is none, and so no names
	quotients map[int]string  // numbers of groups of a row, or of all elements, as names
	helpers   map[string]bool // the functions of runtime/operations.py that the text calls
}

// newWriter returns a writer of a program for a tensor of the given shape. It collects the
// functions that the text calls in helpers.
func newWriter(p *program.Program, shape []int, helpers map[string]bool) *writer {
	w := &writer{p: p, shape: shape, names: axisNames(len(shape)),
		size:      int(program.FloatType(shape...).Size()),
		quotients: map[int]string{}, helpers: helpers}
	i := slices.IndexFunc(p.Inputs, func(in program.Input) bool {
		return len(shape) > 0 && slices.Equal(in.Type.Shape, shape)
	})
	if i < 0 {
		return w
	}
	w.like = identifier(p.Inputs[i].Name)
	last := len(shape) - 1
	for id := range program.ID(p.NumValues()) {
		dims := p.TypeOf(id).Shape
		for i := 1; i < len(dims); i++ {
			d, next := dims[i-1], dims[i]
			switch {
			case d == 1 || next == 1:
			case d*next == shape[last]:
				w.quotients[d] = fmt.Sprintf("%s // %d", w.names[last], next)
			case d*next == w.size && !slices.Contains(shape, d):
				w.quotients[d] = fmt.Sprintf("%s // %d", w.product(), next)
			case w.quotients[d*next] != "" && w.quotients[d] == "":
				w.quotients[d] = fmt.Sprintf("%s // %d", w.quotients[d*next], next)
			}
		}
	}
	return w
}

// node is a node of a program that is being written.
type node struct {
	*program.Node
	w *writer
}

// axisNames lists the names of the axes of a tensor.
func axisNames(rank int) []string {
	switch rank {
	case 1:
		return []string{"columns"}
	case 2:
		return []string{"rows", "columns"}
	}
	names := make([]string, rank)
	for i := range names {
		names[i] = fmt.Sprintf("axis%d", i)
	}
	return names
}

// product writes the number of elements of the tensor.
func (w *writer) product() string { return strings.Join(w.names, " * ") }

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
	named := func(axis string) bool { return strings.Contains(text, axis) }
	if w.like != "" && slices.ContainsFunc(w.names, named) {
		head += fmt.Sprintf("        %s = %s.shape\n", list(w.names), w.like)
	}
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
	return w.elements(n)[0], true
}

func (w *writer) elements(n *program.Node) []string {
	var all []string
	for _, v := range n.Attr.Floats {
		all = append(all, w.float(v))
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

// float writes a number. The reciprocal of an axis or of the size, as in a mean, and that of the
// square root of a multiple of one, as in the gradients of scales, are written as such.
func (w *writer) float(v float64) string {
	if text := w.reciprocal(v); text != "" {
		return text
	}
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

// reciprocal writes v if it is 1/d or 1/√(k·d), where d is the size or that of an axis; else it
// returns "". Small d, and roots that are powers of two, would be found where a program has such a
// number for another reason.
func (w *writer) reciprocal(v float64) string {
	if w.like == "" || !(v > 0) {
		return ""
	}
	sizes, names := slices.Clone(w.shape), slices.Clone(w.names)
	if len(sizes) > 1 {
		sizes, names = append(sizes, w.size), append(names, "("+w.product()+")")
	}
	for i, d := range slices.Backward(sizes) {
		if d > 16 && v == 1/float64(d) {
			return "1 / " + names[i]
		}
	}
	fraction, _ := math.Frexp(v)
	for i, d := range slices.Backward(sizes) {
		factor := math.Round(1 / (v * v * float64(d)))
		if d > 16 && fraction != 0.5 && factor >= 1 && factor < 4096 &&
			v == 1/math.Sqrt(factor*float64(d)) {
			return fmt.Sprintf("1 / math.sqrt(%.0f * %s)", factor, names[i])
		}
	}
	return ""
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
func (n node) dims() string { return n.w.dims(n.Type.Shape) }

func (w *writer) dims(shape []int) string {
	sizes := make([]string, len(shape))
	for i := range shape {
		sizes[i] = w.dim(shape, i)
	}
	return "(" + list(sizes) + ")"
}

// dim writes the size of an axis: by the names of the axes of the tensor, or as a number.
func (w *writer) dim(shape []int, i int) string {
	d := shape[i]
	if w.like == "" || d == 1 {
		return strconv.Itoa(d)
	}
	if i == 0 && d == w.shape[0] {
		return w.names[0]
	}
	for axis, of := range slices.Backward(w.shape) {
		if d == of {
			return w.names[axis]
		}
	}
	if d == w.size {
		return w.product()
	}
	if text, ok := w.quotients[d]; ok && (len(shape) < 3 || i < len(shape)-1) {
		return text // but the last of several axes is the size of a group
	}
	return strconv.Itoa(d)
}

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
	elements := n.w.elements(n.Node)
	if len(elements) == 1 {
		return fmt.Sprintf("torch.full(%s, %s, dtype=%s, device=device)",
			n.dims(), elements[0], n.dtype())
	}
	var text strings.Builder
	for i, e := range elements {
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
	return fmt.Sprintf("%s.reshape(%s).expand(%s)", n.tensor(0), n.w.dims(shape), n.dims())
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
