package testkernel

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/internal/halffloat"
)

// A Tensor is memory that a kernel accesses: float32, bfloat16 (as bits), int8 (also for bools, as
// 0 and 1), or int32.
type Tensor struct {
	Float32  []float32
	BFloat16 []uint16
	Int8     []int8
	Int32    []int32
}

// value is the value of a kernel variable: floats, integers, or the element positions of a pointer.
type value struct {
	kind
	floats   []float32
	integers []int32
	tensor   int // of a pointer: the index of the parameter
}

func (v *value) isFloat() bool { return v.elem == "f32" || v.elem == "bf16" }

// Run executes all instances of a kernel. tensors are the arguments for its parameters.
func Run(text string, grid int, tensors []Tensor) error {
	f, err := parse(text)
	if err != nil {
		return err
	}
	if len(tensors) != len(f.parameters) {
		return fmt.Errorf("the kernel has %d parameters, got %d tensors", len(f.parameters), len(tensors))
	}
	for id := range grid {
		m := &machine{id: id, tensors: tensors, values: map[string]*value{}}
		for i, p := range f.parameters {
			m.values[p.result] = &value{kind: p.types[0], integers: []int32{0}, tensor: i}
		}
		if err := m.run(f.body); err != nil {
			return fmt.Errorf("instance %d, %w", id, err)
		}
	}
	return nil
}

// machine executes one instance of a kernel.
type machine struct {
	id      int
	tensors []Tensor
	values  map[string]*value
}

func (m *machine) run(body []operation) error {
	for i := range body {
		step := m.step
		if body[i].name == "scf.for" {
			step = m.loop
		}
		if err := step(&body[i]); err != nil {
			return fmt.Errorf("line %d, %s: %w", body[i].line, body[i].name, err)
		}
	}
	return nil
}

// step executes one operation after checking that its operands have the types in the text.
func (m *machine) step(op *operation) error {
	args := make([]*value, len(op.args))
	for i, a := range op.args {
		if args[i] = m.values[a]; args[i] == nil {
			return fmt.Errorf("%s is not known", a)
		}
	}
	if err := checkTypes(op, args); err != nil {
		return err
	}
	out, err := m.execute(op, args)
	if err != nil || op.result == "" {
		return err
	}
	m.values[op.result] = out
	if op.name == "arith.constant" || len(op.types) == 0 {
		return nil
	}
	want := op.types[len(op.types)-1]
	if strings.HasPrefix(op.name, "arith.cmp") {
		want.elem = "i1"
	}
	if op.name == "tt.addptr" {
		want = op.types[0]
	}
	if op.name == "tt.load" {
		want.elem = strings.TrimPrefix(want.elem, "*")
	}
	if !out.equal(want) {
		return fmt.Errorf("the result is %v, but the text declares %v", out.kind, want)
	}
	return nil
}

// checkTypes checks the operands against the types in the text, which states one type for each
// operand or one for all.
func checkTypes(op *operation, args []*value) error {
	var want []kind
	switch {
	case len(args) == 0:
	case op.name == "tt.load" || op.name == "tt.store" || op.name == "tt.dot":
		return nil // checked where they are executed
	case op.name == "tt.elementwise_inline_asm":
		want = op.types[:min(len(args), len(op.types))]
		if len(want) < len(args) {
			return fmt.Errorf("%d operands of %d types", len(args), len(want))
		}
	case op.name == "arith.select":
		want = []kind{op.types[0], op.types[1], op.types[1]}
	case op.name == "tt.addptr" || op.name == "tt.extern_elementwise":
		want = op.types[:min(len(args), len(op.types))]
	default:
		want = slices.Repeat(op.types[:1], len(args))
	}
	for i, a := range args {
		if !a.equal(want[i]) {
			return fmt.Errorf("operand %s is %v, but the text declares %v", op.args[i], a.kind, want[i])
		}
	}
	return nil
}

func (m *machine) execute(op *operation, args []*value) (*value, error) {
	result := func() kind { return op.types[len(op.types)-1] }
	switch op.name {
	case "arith.constant":
		return constant(op)
	case "tt.get_program_id":
		return &value{kind: kind{"i32", nil}, integers: []int32{int32(m.id)}}, nil
	case "tt.make_range":
		out := &value{kind: result()}
		for i := range out.size() {
			out.integers = append(out.integers, int32(i))
		}
		return out, nil
	case "tt.splat", "tt.broadcast":
		return broadcast(args[0], result())
	case "tt.elementwise_inline_asm":
		return assembly(op, args, result())
	case "math.fma":
		out := &value{kind: result()}
		for i := range args[0].floats {
			out.floats = append(out.floats,
				fused([]float32{args[0].floats[i], args[1].floats[i], args[2].floats[i]}))
		}
		return out, nil
	case "tt.expand_dims":
		axis, err := op.attribute("axis")
		if err != nil {
			return nil, err
		}
		if want := slices.Insert(slices.Clone(args[0].dims), axis, 1); !slices.Equal(want,
			result().dims) {
			return nil, fmt.Errorf("cannot broadcast %v to %v", args[0].dims, result().dims)
		}
		out := *args[0]
		out.kind = result()
		return &out, nil
	case "tt.reshape":
		if args[0].size() != result().size() {
			return nil, fmt.Errorf("cannot reshape %d elements to %d", args[0].size(), result().size())
		}
		out := *args[0]
		out.kind = result()
		return &out, nil
	case "tt.trans":
		return transpose(op, args[0], result())
	case "tt.addptr":
		return elementwise2(args[0].kind, args[0], args[1], nil, func(x, y int32) int32 { return x + y })
	case "tt.load":
		return m.load(args, result())
	case "tt.store":
		return nil, m.store(args)
	case "tt.dot":
		return dot(args, op.types)
	case "tt.reduce":
		return reduce(op, args[0])
	case "arith.select":
		out := &value{kind: args[1].kind, floats: slices.Clone(args[2].floats),
			integers: slices.Clone(args[2].integers)}
		for i, c := range args[0].integers {
			if c != 0 && out.isFloat() {
				out.floats[i] = args[1].floats[i]
			} else if c != 0 {
				out.integers[i] = args[1].integers[i]
			}
		}
		return out, nil
	}
	return arithmetic(op, args, result())
}

func constant(op *operation) (*value, error) {
	text := strings.TrimSpace(op.words)
	switch {
	case text == "true" || text == "false":
		return &value{kind: kind{"i1", nil}, integers: []int32{map[string]int32{"true": 1}[text]}}, nil
	case op.types[0].elem == "f32" || op.types[0].elem == "bf16":
		out := &value{kind: op.types[0]}
		if bits, ok := strings.CutPrefix(text, "0x"); ok {
			u, err := strconv.ParseUint(bits, 16, 32)
			out.floats = []float32{math.Float32frombits(uint32(u))}
			return out, err
		}
		if !strings.Contains(text, ".") {
			return nil, fmt.Errorf("float %s has no decimal point", text)
		}
		x, err := strconv.ParseFloat(text, 32)
		out.floats = []float32{float32(x)}
		return out, err
	}
	n, err := strconv.ParseInt(text, 10, 32)
	return &value{kind: op.types[0], integers: []int32{int32(n)}}, err
}

// size returns the number of the tensor's elements of type elem.
func (t Tensor) size(elem string) int {
	switch elem {
	case "f32":
		return len(t.Float32)
	case "bf16":
		return len(t.BFloat16)
	case "i8":
		return len(t.Int8)
	}
	return len(t.Int32)
}

// load reads the elements at a pointer's positions where the mask is set.
func (m *machine) load(args []*value, k kind) (*value, error) {
	pointer := args[0]
	k.elem = k.elem[1:]
	out := &value{kind: k}
	t := m.tensors[pointer.tensor]
	if !pointer.equal(kind{"*" + k.elem, k.dims}) || len(args) == 2 {
		return nil, fmt.Errorf("a load of %v from %v", k, pointer.kind)
	}
	for i, place := range pointer.integers {
		var f float32
		var n int32
		switch {
		case len(args) == 3 && args[1].integers[i] == 0:
			if out.isFloat() {
				f = args[2].floats[i]
			} else {
				n = args[2].integers[i]
			}
		case place < 0 || int(place) >= t.size(k.elem):
			return nil, fmt.Errorf("element %d accessed, want less than %d", place, t.size(k.elem))
		case k.elem == "f32":
			f = t.Float32[place]
		case k.elem == "bf16":
			f = halffloat.FromBFloat16(t.BFloat16[place])
		case k.elem == "i8":
			n = int32(t.Int8[place])
		default:
			n = t.Int32[place]
		}
		if out.isFloat() {
			out.floats = append(out.floats, f)
		} else {
			out.integers = append(out.integers, n)
		}
	}
	return out, nil
}

// store writes elements at a pointer's positions where the mask is set.
func (m *machine) store(args []*value) error {
	pointer, v := args[0], args[1]
	t := m.tensors[pointer.tensor]
	if !pointer.equal(kind{"*" + v.elem, v.dims}) {
		return fmt.Errorf("a store of %v to %v", v.kind, pointer.kind)
	}
	for i, place := range pointer.integers {
		switch {
		case len(args) == 3 && args[2].integers[i] == 0:
		case place < 0 || int(place) >= t.size(v.elem):
			return fmt.Errorf("element %d accessed, want less than %d", place, t.size(v.elem))
		case v.elem == "f32":
			t.Float32[place] = v.floats[i]
		case v.elem == "bf16":
			t.BFloat16[place] = uint16(math.Float32bits(v.floats[i]) >> 16)
		case v.elem == "i8":
			t.Int8[place] = int8(v.integers[i])
		default:
			t.Int32[place] = v.integers[i]
		}
	}
	return nil
}
