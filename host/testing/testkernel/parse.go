package testkernel

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// kind is the type of a value: an element type and, for a tensor, its shape.
type kind struct {
	elem string // f32, bf16, i1, i8, i32, or one of these behind a *
	dims []int  // nil for a scalar
}

func (k kind) size() int {
	n := 1
	for _, d := range k.dims {
		n *= d
	}
	return n
}

func (k kind) equal(o kind) bool {
	return k.elem == o.elem && slices.Equal(k.dims, o.dims) && (k.dims == nil) == (o.dims == nil)
}

// operation is a parsed operation of a kernel.
type operation struct {
	line   int
	result string // empty for none
	name   string
	words  string // the text between the name and the types
	args   []string
	types  []kind
	fold   string      // of a reduction: the operation on two elements
	body   []operation // of a loop
}

// function is a parsed kernel.
type function struct {
	parameters []operation // their names in result, and their types
	body       []operation
}

var (
	header    = regexp.MustCompile(`^tt\.func public @\w+\((.*)\) attributes \{noinline = false\} \{$`)
	statement = regexp.MustCompile(`^(?:(%\w+)(?::\d+)? = )?"?([a-z_]+\.[a-z_]+)"?(.*)$`)
	name      = regexp.MustCompile(`%\w+(?:#\d+)?`)
	typ       = regexp.MustCompile(
		`tensor<((?:\d+x)+)(!tt\.ptr<\w+>|\w+)>|!tt\.ptr<\w+>|\bf32\b|\bbf16\b|\bi(?:1|8|32|64)\b`)
)

func parse(text string) (*function, error) {
	f := &function{}
	bodies := []*[]operation{&f.body} // the open bodies: the function's, then those of loops
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimSpace(lines[i])
		switch {
		case line == "}" && len(bodies) > 1:
			bodies = bodies[:len(bodies)-1]
		case line == "" || strings.HasPrefix(line, "module ") || line == "}" || line == "tt.return":
		case header.MatchString(line):
			for _, p := range strings.Split(header.FindStringSubmatch(line)[1], "}, ") {
				f.parameters = append(f.parameters,
					operation{result: name.FindString(p), types: types(strings.Split(p, " {")[0])})
			}
		default:
			op, err := parseLine(i+1, line)
			if err != nil {
				return nil, err
			}
			if op.name == "tt.reduce" {
				if i+4 >= len(lines) {
					return nil, fmt.Errorf("line %d: incomplete reduction", i+1)
				}
				op.fold = strings.Fields(lines[i+2])[2]
				op.types = types(lines[i+4])
				i += 4
			}
			body := bodies[len(bodies)-1]
			*body = append(*body, op)
			if op.name == "scf.for" {
				bodies = append(bodies, &(*body)[len(*body)-1].body)
			}
		}
	}
	if f.parameters == nil {
		return nil, fmt.Errorf("there is no function")
	}
	return f, nil
}

func parseLine(number int, line string) (operation, error) {
	m := statement.FindStringSubmatch(line)
	if m == nil {
		return operation{}, fmt.Errorf("line %d: %q is not an operation", number, line)
	}
	op := operation{line: number, result: m[1], name: m[2], words: m[3]}
	if at := strings.LastIndex(m[3], " : "); at >= 0 && op.name != "tt.reduce" {
		op.words, op.types = m[3][:at], types(m[3][at:])
	}
	op.args = name.FindAllString(op.words, -1)
	return op, nil
}

// types returns the types that occur in text.
func types(text string) []kind {
	var list []kind
	for _, m := range typ.FindAllStringSubmatch(text, -1) {
		elem, dims := m[0], []int(nil)
		if m[1] != "" {
			elem = m[2]
			for _, d := range strings.Split(strings.TrimSuffix(m[1], "x"), "x") {
				n, _ := strconv.Atoi(d)
				dims = append(dims, n)
			}
		}
		if inner, ok := strings.CutPrefix(elem, "!tt.ptr<"); ok {
			elem = "*" + strings.TrimSuffix(inner, ">")
		}
		list = append(list, kind{elem, dims})
	}
	return list
}

// attribute returns an integer attribute, as in "axis = 1 : i32".
func (op *operation) attribute(key string) (int, error) {
	m := regexp.MustCompile(`\b` + key + ` = (-?\d+)`).FindStringSubmatch(op.words)
	if m == nil {
		return 0, fmt.Errorf("line %d: %s has no %s", op.line, op.name, key)
	}
	return strconv.Atoi(m[1])
}

// order returns the permutation of a transposition, as in "order = array<i32: 1, 0>".
func (op *operation) order() (list []int, err error) {
	m := regexp.MustCompile(`order = array<i32: ([\d, ]+)>`).FindStringSubmatch(op.words)
	if m == nil {
		return nil, fmt.Errorf("line %d: %s has no order", op.line, op.name)
	}
	for _, text := range strings.Split(m[1], ", ") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return list, nil
}

// symbol returns the name of the called library function.
func (op *operation) symbol() string {
	m := regexp.MustCompile(`symbol = "(\w+)"`).FindStringSubmatch(op.words)
	if m == nil {
		return ""
	}
	return m[1]
}
