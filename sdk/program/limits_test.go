package program_test

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/sdk/program"
)

// chain returns a program of n negations of a float of the given shape.
func chain(n int, shape ...int) *program.Program {
	p := &program.Program{
		Name:    "p",
		Inputs:  []program.Input{{Name: "x", Type: fl(shape...)}},
		Outputs: []program.Output{{Name: "y", Value: program.ID(n)}},
	}
	for i := range n {
		p.Nodes = append(p.Nodes, program.Node{Op: program.OpNeg, Args: []program.ID{program.ID(i)},
			Type: fl(shape...)})
	}
	return p
}

// product returns a program that multiplies an m×k and a k×n matrix.
func product(m, k, n int) *program.Program {
	return single(program.OpDot, attr{LhsContract: []int{1}, RhsContract: []int{0}}, fl(m, n),
		types{fl(m, k), fl(k, n)})
}

// joined returns a program whose nodes each concatenate so many copies of the input.
func joined(operands, nodes int) *program.Program {
	p := chain(0, 1)
	for i := range nodes {
		p.Nodes = append(p.Nodes, program.Node{Op: program.OpConcatenate, Attr: attr{Axes: []int{0}},
			Args: make([]program.ID, operands), Type: fl(operands)})
		p.Outputs = []program.Output{{Name: "y", Value: program.ID(1 + i)}}
	}
	return p
}

func TestLimits(t *testing.T) {
	square := func(op program.Op, result program.Type, shape ...int) *program.Program {
		return single(op, attr{}, result, types{fl(shape...)})
	}
	cases := []struct {
		name         string
		p            *program.Program
		enough, less program.Limits
		want         string // under the limits less
	}{
		{"nodes", chain(5, 2), program.Limits{Nodes: 5}, program.Limits{Nodes: 4},
			"nodes: got 5 nodes, want at most 4"},
		{"elements of an input", chain(0, 10, 10), program.Limits{Elements: 100},
			program.Limits{Elements: 99}, `input 0 ("x"): float[10,10] has 100 elements, want at most 99`},
		{"elements of a node", single(program.OpBroadcast, attr{}, fl(100), types{fl()}),
			program.Limits{Elements: 100}, program.Limits{Elements: 99},
			"%1 = broadcast: float[100] has 100 elements, want at most 99"},
		{"total", chain(4, 10), program.Limits{Total: 50}, program.Limits{Total: 49},
			"%4 = neg: the values have more than 49 elements in total"},
		{"work of dot", product(2, 3, 4), program.Limits{Work: 24}, program.Limits{Work: 23},
			"%2 = dot: products and factorizations need more than 23 multiplications"},
		{"work of hadamard", single(program.OpHadamard, attr{Block: 4}, fl(2, 8), types{fl(2, 8)}),
			program.Limits{Work: 64}, program.Limits{Work: 63},
			"%1 = hadamard: products and factorizations need more than 63 multiplications"},
		{"work of qr", square(program.OpQR, fl(2, 4, 3), 2, 4, 3), program.Limits{Work: 72, Linalg: true},
			program.Limits{Work: 71, Linalg: true},
			"%1 = qr: products and factorizations need more than 71 multiplications"},
		{"work of eigh", square(program.OpEighValues, fl(4), 4, 4),
			program.Limits{Work: 64, Linalg: true}, program.Limits{Work: 63, Linalg: true},
			"%1 = eigh_values: products and factorizations need more than 63 multiplications"},
		{"constants", single(program.OpConstant, attr{Floats: make([]float64, 10)}, fl(10), nil),
			program.Limits{Constants: 10}, program.Limits{Constants: 9},
			"%0 = constant: the constants have more than 9 elements in total"},
		{"a filled constant is one element", single(program.OpConstant, attr{Floats: make([]float64, 1)},
			fl(10), nil), program.Limits{Constants: 1}, program.Limits{Elements: 9},
			"%0 = constant: float[10] has 10 elements, want at most 9"},
		{"operands of all", joined(20, 20), program.Limits{Nodes: 25}, program.Limits{Nodes: 24},
			"%20 = concatenate: the operations have more than 384 operands in total"},
		{"linalg", square(program.OpQR, fl(2, 2), 2, 2), program.Limits{Linalg: true}, program.Limits{},
			"%1 = qr: factorizations are for refresh programs only"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if err := c.p.Validate(c.enough); err != nil {
				t.Errorf("with enough: %v", err)
			}
			want := `program "p": ` + c.want
			if err := c.p.Validate(c.less); err == nil || err.Error() != want {
				t.Errorf("with less: got %v\nwant %s", err, want)
			}
		})
	}
}

func TestManyInputsAndOutputs(t *testing.T) {
	p := chain(0, 1)
	for i := range 10 {
		p.Outputs = append(p.Outputs, program.Output{Name: fmt.Sprint("o", i)})
	}
	if err := p.Validate(program.Limits{Nodes: 10}); err == nil ||
		!strings.Contains(err.Error(),
			"signature: got 1 inputs and 11 outputs, want at most 10 of each") {
		t.Errorf("got %v", err)
	}
}

// TestSizesDoNotOverflow checks that sizes beyond int64 are refused.
func TestSizesDoNotOverflow(t *testing.T) {
	const huge = 1 << 31
	for _, shape := range [][]int{
		{huge}, {huge, huge}, {1 << 16, 1 << 16}, {math.MaxInt}, {math.MaxInt, math.MaxInt},
		{1 << 32, 1 << 32},
		slices.Repeat([]int{1 << 8}, 8), {3, math.MaxInt/3 + 1}, slices.Repeat([]int{math.MaxInt}, 8),
	} {
		if size := fl(shape...).Size(); size <= program.MaxSize {
			t.Errorf("%v has the size %d", shape, size)
		}
		want := fmt.Sprintf(`program "p": input 0 ("x"): %s has more than 2147483647 elements`,
			fl(shape...))
		if err := chain(0, shape...).Validate(program.Limits{}); err == nil || err.Error() != want {
			t.Errorf("%v: got %v", shape, err)
		}
	}
	if size := fl(program.MaxSize).Size(); size != program.MaxSize {
		t.Errorf("the largest size is %d", size)
	}
	// 100 products of 10¹⁴ multiplications each exceed the default limit.
	p := product(46340, 46340, 46340)
	p.Nodes = slices.Repeat(p.Nodes, 100)
	for i := range p.Nodes {
		p.Nodes[i].Args = []program.ID{0, program.ID(i)}
		if i == 0 {
			p.Nodes[i].Args = []program.ID{0, 1}
		}
	}
	if err := p.Validate(program.Limits{Work: math.MaxInt64, Total: 1 << 50}); err != nil {
		t.Errorf("10¹⁶ multiplications with a limit of 2⁶³: %v", err)
	}
	if err := p.Validate(program.Limits{Total: 1 << 50}); err == nil ||
		!strings.Contains(err.Error(), "multiplications") {
		t.Errorf("10¹⁶ multiplications with the default limit: %v", err)
	}
}

// TestHostileProgramsCostNothing checks that validating a program, valid or not, needs memory in
// proportion to its text, not to the sizes in it.
func TestHostileProgramsCostNothing(t *testing.T) {
	cases := map[string]*program.Program{
		"inputs of 2³¹ elements": chain(100, program.MaxSize),
		"2⁶² elements":           chain(100, 1<<31, 1<<31),
		"filled constants": single(program.OpConstant, attr{Floats: []float64{1}},
			fl(program.MaxSize), nil),
		"random bits": single(program.OpRandomBits, attr{}, un(program.MaxSize), types{un(2)}),
		"iota":        single(program.OpIota, attr{Axes: []int{0}}, in(program.MaxSize), nil),
		"broadcast":   single(program.OpBroadcast, attr{}, fl(1<<15, 1<<15), types{fl()}),
		"outer product": single(program.OpDot, attr{}, fl(1<<15, 1<<15),
			types{fl(1 << 15), fl(1 << 15)}),
		"matrix product": product(1<<15, 1<<15, 1<<15),
		"long axes": single(program.OpReduceSum, attr{Axes: make([]int, 1<<20)}, fl(),
			types{fl(2)}),
		"long name": {Name: strings.Repeat("x", 1<<20)},
	}
	for name, p := range cases {
		t.Run(name, func(t *testing.T) {
			const most = 64 << 10
			if got := bytesPerRun(func() { _ = p.Validate(program.Limits{}) }); got > most {
				t.Errorf("validating allocates %d bytes, more than %d", got, most)
			}
		})
	}
}

// bytesPerRun returns the memory that f allocates, averaged over several runs.
func bytesPerRun(f func()) uint64 {
	const runs = 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range runs {
		f()
	}
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) / runs
}

func TestErrorsOfHostileProgramsAreShort(t *testing.T) {
	name := strings.Repeat("%", 1<<16)
	for _, p := range []*program.Program{
		{Name: name},
		{Name: "p", Inputs: []program.Input{{Name: name}}},
		{Name: "p", Inputs: []program.Input{{Name: "x", Type: fl(1)}},
			Outputs: []program.Output{{Name: name}}},
		{Name: "p", Inputs: []program.Input{{Name: "x", Type: fl(make([]int, 1<<16)...)}}},
		single(program.OpTranspose, attr{Axes: make([]int, 1<<16)}, fl(1), types{fl(1)}),
		single(program.OpConcatenate, attr{Axes: make([]int, 1<<16)}, fl(1), types{fl(1)}),
		single(program.OpReduceSum, attr{Axes: make([]int, 1<<16)}, fl(1), types{fl(1)}),
		single(program.OpReshape, attr{}, fl(slices.Repeat([]int{math.MaxInt}, 8)...), types{fl(1)}),
	} {
		err := p.Validate(program.Limits{})
		if err == nil || len(err.Error()) > 500 {
			t.Errorf("an error of %d bytes", len(fmt.Sprint(err)))
		}
	}
}
