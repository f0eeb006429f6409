package graph

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/internal/lists"
)

// A Struct is an attribute of StableHLO with fields.
type Struct struct {
	Name   string
	Fields []Attribute
}

// Quoted returns text as a string of MLIR.
func Quoted(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text) + `"`
}

// Text returns the graph as a module of StableHLO in MLIR. Aliases maps parameters to the results
// that may take their memory.
func (g *Graph) Text(aliases map[int]int) string {
	w := &writer{names: map[*Node]string{}, used: map[string]bool{}}
	attributes := ""
	if g.replicas > 1 {
		attributes = fmt.Sprintf(" attributes {stablehlo.num_replicas = %d}", g.replicas)
	}
	fmt.Fprintf(w, "module @%s%s {\n  func.func @main(", identifier(g.name), attributes)
	for i, p := range g.main.Parameters {
		name := identifier(g.main.names[i])
		for w.used[name] {
			name += "_"
		}
		w.used[name] = true
		w.names[p] = "%" + name
		if i > 0 {
			fmt.Fprint(w, ", ")
		}
		fmt.Fprintf(w, "%%%s: %s", name, typeOf(p))
		if at, ok := aliases[i]; ok {
			// XLA reads this as "may alias": it first copies an input that a call does not donate.
			fmt.Fprintf(w, " { tf.aliasing_output = %d : i32 }", at)
		}
	}
	fmt.Fprintf(w, ") -> (%s) {\n", types(g.main.Results))
	w.body(g.main, "    ")
	fmt.Fprint(w, "  }\n}\n")
	return w.String()
}

// writer writes a graph.
type writer struct {
	bytes.Buffer
	names map[*Node]string
	used  map[string]bool // names of parameters
	count int
}

// identifier returns a name in which all but letters, digits and underscores are underscores.
func identifier(name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, name)
	if name == "" || name[0] <= '9' {
		return "_" + name
	}
	return name
}

func tensor(s shapes.Shape) string {
	text := "tensor<"
	for _, d := range s.Dimensions {
		text += fmt.Sprintf("%dx", d)
	}
	return text + s.DType.MLIR() + ">"
}

func typeOf(n *Node) string { return tensor(n.shape) }

func types(nodes []*Node) string { return joined(nodes, typeOf) }

func joined[T any](list []T, text func(v T) string) string {
	return strings.Join(lists.Map(list, text), ", ")
}

// list returns a list of integers.
func list(v []int) string {
	return "[" + joined(v, strconv.Itoa) + "]"
}

func (w *writer) name(n *Node) string {
	if w.names[n] == "" {
		w.names[n] = fmt.Sprintf("%%%d", w.count)
		w.count++
	}
	return w.names[n]
}

// body writes the operations of a function.
func (w *writer) body(f *Function, indent string) {
	for _, op := range f.Operations {
		args := joined(op.Args, w.name)
		fmt.Fprintf(w, "%s%s = \"stablehlo.%s\"(%s)", indent, joined(op.Results, w.name), op.Name, args)
		for i, inner := range op.Bodies {
			fmt.Fprint(w, []string{" ({\n", ", {\n"}[min(i, 1)])
			fmt.Fprintf(w, "%s  ^bb0(%s):\n", indent, joined(inner.Parameters, func(p *Node) string {
				return w.name(p) + ": " + typeOf(p)
			}))
			w.body(inner, indent+"    ")
			fmt.Fprintf(w, "%s}", indent)
		}
		if len(op.Bodies) > 0 {
			fmt.Fprint(w, ")")
		}
		attributes := op.Attributes
		if op.Data != nil {
			value := fmt.Sprintf("dense<%s> : %s", literal(op.Data, op.Results[0].shape.Dimensions),
				typeOf(op.Results[0]))
			attributes = []Attribute{{"value", value}}
		}
		if len(attributes) > 0 {
			fmt.Fprintf(w, " { %s }", joined(attributes, attribute))
		}
		fmt.Fprintf(w, " : (%s) -> ", types(op.Args))
		if len(op.Results) == 1 {
			fmt.Fprintln(w, typeOf(op.Results[0]))
		} else {
			fmt.Fprintf(w, "(%s)\n", types(op.Results))
		}
	}
	name := "stablehlo.return"
	fmt.Fprintf(w, "%s%q(%s) : (%s) -> ()\n", indent, name, joined(f.Results, w.name),
		types(f.Results))
}

// attribute returns an attribute of an operation.
func attribute(a Attribute) string {
	switch v := a.Value.(type) {
	case int:
		return fmt.Sprintf("%s = %d : i64", a.Name, v)
	case []int:
		if len(v) == 0 {
			return a.Name + " = array<i64>"
		}
		return fmt.Sprintf("%s = array<i64: %s>", a.Name, strings.Trim(list(v), "[]"))
	case Struct:
		return fmt.Sprintf("%s = #stablehlo.%s<%s>", a.Name, v.Name, joined(v.Fields, field))
	}
	return fmt.Sprintf("%s = %v", a.Name, a.Value)
}

// field returns a field of a [Struct].
func field(a Attribute) string {
	if v, ok := a.Value.([]int); ok {
		return a.Name + " = " + list(v)
	}
	return fmt.Sprintf("%s = %v", a.Name, a.Value)
}

// literal returns the elements of a constant as a literal of MLIR: numbers one by one, tables as
// their bytes.
func literal(data any, dims []int) string {
	v := reflect.ValueOf(data)
	switch bools, ok := data.([]bool); {
	case slices.Contains(dims, 0):
		return ""
	case v.Len() == 1:
		return element(v.Index(0).Interface())
	case ok: // bytes would have a bit for each
		return nested(bools, dims)
	}
	var raw bytes.Buffer
	_ = binary.Write(&raw, binary.LittleEndian, data) // numbers can be written to memory
	return fmt.Sprintf(`"0x%X"`, raw.Bytes())
}

func nested(data []bool, dims []int) string {
	if len(dims) == 0 {
		return fmt.Sprint(data[0])
	}
	n := len(data) / dims[0]
	return "[" + joined(lists.Range(dims[0]), func(i int) string {
		return nested(data[i*n:(i+1)*n], dims[1:])
	}) + "]"
}

func element(v any) string {
	switch v := v.(type) {
	case float32:
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Sprintf("0x%08X", math.Float32bits(v))
		}
		return fmt.Sprintf("%.8e", v)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Sprintf("0x%016X", math.Float64bits(v))
		}
		return fmt.Sprintf("%.16e", v)
	case shapes.BFloat, shapes.Half:
		return fmt.Sprintf("0x%04X", v)
	}
	return fmt.Sprint(v)
}
