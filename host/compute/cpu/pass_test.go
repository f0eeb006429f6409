package cpu_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cage-qat/cage/host/compute/cpu"
	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/host/testing/testrows"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// blocks returns a program that quantizes groups of a row to integers times powers of two, as MXFP4
// does. All rows share the gain.
func blocks(t testing.TB, n, columns, group int) *program.Program {
	t.Helper()
	b := program.NewBuilder("blocks")
	x, gain := b.Input("x", program.FloatType(n, columns)),
		b.Input("gain", program.FloatType(1, columns))
	if n == 1 { // not shared, but an ordinary row
		gain = gain.Scale(1)
	}
	g := x.Mul(gain).Reshape(n, columns/group, group)
	highest := g.Abs().MaxRow()
	exponent := highest.Logb().Clip(-126, 127)
	code := g.Mul(b.Const(1).Ldexp(exponent.Neg())).Round()
	bits := g.Bitcast(program.Uint).And(b.ConstUint(0x7f800000))
	b.Output("value", code.Mul(b.Const(1).Ldexp(exponent)).Reshape(n, columns))
	b.Output("code", code.Reshape(n, columns))
	b.Output("least", g.MinRow())
	b.Output("bits", bits)
	b.Output("sums", g.Convert(program.Int).ReduceSum(1)) // over groups
	b.Output("places", b.Iota(program.Type{DType: program.Int, Shape: []int{n, columns}}, 1).
		Lt(b.ConstInt(3)))
	b.Output("squashed", x.Exp().Add(x.Tanh()).
		Sub(g.ReduceSum(1).Broadcast([]int{n, columns / group, group}, []int{0, 2}).Reshape(n, columns)))
	b.Output("exceeds", x.Gt(x.MeanRow()).And(x.IsFinite().Not()).
		Or(x.Le(gain.Broadcast([]int{n, columns}, []int{0, 1}))))
	return built(t, b)
}

// TestShapes compares programs on rows of several numbers, lengths and storages with the reference
// implementation. The inputs avoid discontinuities.
func TestShapes(t *testing.T) {
	for _, n := range []int{1, 3, 17, 64} {
		for _, shape := range [][2]int{{32, 16}, {48, 16}, {100, 4}, {96, 32}, {320, 64}, {704, 64},
			{5120, 128}} {
			for _, stored := range []passes.Storage{passes.Float32, passes.BFloat16} {
				if n*shape[0] > 1<<16 { // slow for the reference
					continue
				}
				for name, p := range map[string]*program.Program{
					"blocks": blocks(t, n, shape[0], shape[1]), "quest": quest(t, n, shape[0], shape[1], true),
					"trained quest": trainedQuest(t, n, shape[0]), "gate back": gateBack(t, n, shape[0]),
					"losses":      losses(t, n, shape[0]),
					"whole quest": quest(t, n, shape[0], shape[1], false),
					"back":        questBack(t, n, shape[0], shape[1], true),
				} {
					rng := rand.New(rand.NewPCG(uint64(n), uint64(shape[0])))
					in := map[string]reference.Tensor{}
					for _, i := range p.Inputs {
						in[i.Name] = halves(random(rng, i.Type))
					}
					at := map[string]passes.Storage{"x": stored, "value": stored, "code": passes.Int8,
						"integers": passes.Int8, "dx": stored, "dgate": stored}
					compareWithOracle(t, fmt.Sprint(name, n, shape, stored), p, n, at, in)
				}
			}
		}
	}
}

// TestSteps checks quantizers with one step for all elements, or for each row, column or run of
// elements, with codes in float32 or 8 bits, on many more rows than a tile has.
func TestSteps(t *testing.T) {
	const n, columns = 300, 80
	rng := rand.New(rand.NewPCG(4, 7))
	for _, shape := range [][]int{{1, 1}, {n, 1}, {1, columns}, {n, 4, 1}} {
		for _, divides := range []bool{false, true} {
			b := program.NewBuilder("steps")
			x, step := b.Input("x", program.FloatType(n, columns)),
				b.Input("step", program.FloatType(shape...))
			spread, runs := step, []int{n, columns}
			if len(shape) == 3 {
				runs = []int{n, 4, columns / 4}
			}
			axes := []int{0, 1, 2}[:len(runs)]
			spread = spread.Broadcast(runs, axes)
			r := x.Reshape(runs...)
			if divides {
				r = r.Div(spread)
			}
			clamped := r.Clip(-7, 7)
			whole := clamped.Round()
			b.Output("value", whole.Mul(spread).Reshape(n, columns))
			b.Output("mask", r.Sub(clamped).Abs().Le(b.Const(0.5)).Reshape(n, columns))
			b.Output("codes", whole.Reshape(n, columns))
			p := built(t, b)
			steps := random(rng, program.FloatType(shape...))
			for i, v := range steps.Floats {
				steps.Floats[i] = float64(float32(0.2 + math.Abs(v)))
			}
			in := map[string]reference.Tensor{"x": halves(random(rng, program.FloatType(n, columns))),
				"step": steps}
			for _, at := range []map[string]passes.Storage{nil,
				{"codes": passes.Int8, "value": passes.BFloat16}} {
				compareWithOracle(t, fmt.Sprint(shape, divides, at), p, n, at, in)
			}
		}
	}
}

// TestNumbersForRuns checks operands whose elements stand for runs of different lengths.
func TestNumbersForRuns(t *testing.T) {
	const n, columns = 300, 80
	rng := rand.New(rand.NewPCG(9, 7))
	b := program.NewBuilder("runs")
	x := b.Input("x", program.FloatType(n, columns))
	var spread [3]program.Value
	runs := []int{1, 4, 20} // in a row
	for i, m := range runs {
		spread[i] = b.Input(fmt.Sprint("of", m), program.FloatType(n, m))
	}
	for i, m := range runs {
		spread[i] = spread[i].Reshape(n, m, 1).Broadcast([]int{n, m, columns / m}, []int{0, 1, 2}).
			Reshape(n, columns)
	}
	row, wide, narrow := spread[0], spread[1], spread[2]
	b.Output("choice", x.Gt(b.Const(0)).Select(row, narrow))
	b.Output("other", x.Gt(b.Const(0)).Select(narrow, wide))
	b.Output("sum", wide.Add(narrow).Mul(row))
	b.Output("all", x.Mul(row).Add(wide).Sub(narrow))
	p := built(t, b)
	in := map[string]reference.Tensor{}
	for _, i := range p.Inputs {
		in[i.Name] = halves(random(rng, i.Type))
	}
	compareWithOracle(t, "runs", p, n, nil, in)
}

// halves rounds floats to odd multiples of 1/64, which are exact in bfloat16.
func halves(x reference.Tensor) reference.Tensor {
	for i, v := range x.Floats {
		x.Floats[i] = (math.Round(max(-3, min(3, v))*16) + 0.5) / 32
	}
	return x
}

// special is the name of comparisons in which no element may be another: the few that are not
// finite would be among those that compareWithOracle passes.
const special = "special numbers"

func compareWithOracle(
	t *testing.T, name string, p *program.Program, n int, at map[string]passes.Storage,
	in map[string]reference.Tensor,
) {
	t.Helper()
	got, computed, err := testrows.Run(p, n, at, in)
	if err != nil || !computed {
		t.Fatalf("%s: %t, %v", name, computed, err)
	}
	want, err := reference.Run32(p, in)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range p.Outputs {
		tolerance := 2e-6
		if at[o.Name] == passes.BFloat16 {
			tolerance = 1.0 / 256
		}
		moved := 0 // sums in another order change the code of values near a tie
		for i, w := range want[o.Name].Floats {
			if g := got[o.Name].Floats[i]; !(math.Abs(g-w) <= tolerance*(math.Abs(w)+4)) && g != w &&
				!(g != g && w != w) {
				moved++
			}
		}
		for i, w := range want[o.Name].Ints {
			if got[o.Name].Ints[i] != w {
				moved++
			}
		}
		if size := int(p.TypeOf(o.Value).Size()); moved > size/200 || moved > 0 && name == special {
			t.Errorf("%s: %d of %d elements of %s are not those of the reference", name, moved, size, o.Name)
		}
	}
}

// TestSpecialNumbers compares rows with NaN, infinities and zeros of both signs, and other rows
// beside them, with the reference implementation.
func TestSpecialNumbers(t *testing.T) {
	const n, columns = 12, 80
	rng := rand.New(rand.NewPCG(3, 5))
	numbers := []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1), 0,
		math.MaxFloat32, 1e-45}
	x := halves(random(rng, program.FloatType(n, columns)))
	for i, v := range numbers {
		x.Floats[i*columns+i] = v
	}
	for i := range columns {
		x.Floats[8*columns+i] = 0
	}
	gain := halves(random(rng, program.FloatType(1, columns)))
	for name, p := range map[string]*program.Program{"blocks": withoutCasts(t, n, columns),
		"quest": quest(t, n, columns, 16, true)} {
		in := map[string]reference.Tensor{"x": x}
		if name == "blocks" {
			in["gain"] = gain
		}
		t.Run(name, func(t *testing.T) { compareWithOracle(t, special, p, n, nil, in) })
	}
}

// withoutCasts returns the outputs of blocks that do not convert NaN to integers.
func withoutCasts(t *testing.T, n, columns int) *program.Program {
	t.Helper()
	p, err := transform.Trim(blocks(t, n, columns, 16), "least", "bits", "exceeds", "squashed")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestTasks checks that results have the same bits for any number of concurrent tasks in any order,
// and that a pass can run several calls at once.
func TestTasks(t *testing.T) {
	const n, columns = 3000, 96
	p := blocks(t, n, columns, 32)
	k, err := cpu.Compile(p, n, nil)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 9))
	var in []any
	for _, i := range p.Inputs {
		in = append(in, testrows.ToMemory(random(rng, i.Type), ""))
	}
	run := func(parallel func(n int, f func(i int))) []any {
		var out []any
		for _, o := range p.Outputs {
			out = append(out, testrows.Empty(p.TypeOf(o.Value), ""))
		}
		if err := k.Run(in, out, parallel); err != nil {
			t.Error(err)
		}
		return out
	}
	tasks := 0
	want := fmt.Sprint(run(func(n int, f func(i int)) { tasks = n; testrows.InTurn(n, f) }))
	if tasks < 3 {
		t.Fatalf("%d tasks: nothing is tested", tasks)
	}
	backwards := func(n int, f func(i int)) {
		for i := range n {
			f(n - 1 - i)
		}
	}
	atOnce := func(n int, f func(i int)) {
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() { f(i) })
		}
		all.Wait()
	}
	var calls sync.WaitGroup
	for _, parallel := range []func(n int, f func(i int)){backwards, atOnce, atOnce} {
		calls.Go(func() {
			if got := fmt.Sprint(run(parallel)); got != want {
				t.Error("the results are others")
			}
		})
	}
	calls.Wait()
}

// TestRefusals checks the reasons for which programs not over rows are refused.
func TestRefusals(t *testing.T) {
	for want, write := range map[string]func(b *program.Builder, x, y, z program.Value) program.Value{
		"executors of rows do not have this operation": func(b *program.Builder, x, y,
			z program.Value) program.Value {
			return x.Transpose(1, 0).Reshape(4, 8)
		},
		"an operand is reduced over some of the axes across rows": func(b *program.Builder, x, y,
			z program.Value) program.Value {
			return x.ReduceSum(0).Reshape(1, 8).Add(x)
		},
		"rows of its operands are repeated": func(b *program.Builder, x, y,
			z program.Value) program.Value {
			return x.Reshape(2, 2, 8).Add(y).Reshape(4, 8)
		},
		"it reads a value that all rows share": func(b *program.Builder, x, y,
			z program.Value) program.Value {
			return z.Exp().Add(x)
		},
		"it counts along rows": func(b *program.Builder, x, y, z program.Value) program.Value {
			return x.Add(b.Iota(program.FloatType(4, 8), 0))
		},
		"its blocks span several rows": func(b *program.Builder, x, y, z program.Value) program.Value {
			return x.Reshape(32).Hadamard(32).Reshape(4, 8)
		},
	} {
		b := program.NewBuilder("refused")
		x, y := b.Input("x", program.FloatType(4, 8)), b.Input("y", program.FloatType(2, 1, 8))
		z := b.Input("z", program.FloatType(1, 8))
		b.Output("y", write(b, x, y, z))
		_, err := cpu.Compile(built(t, b), 4, nil)
		if refused := (*passes.Refusal)(nil); !errors.As(err, &refused) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := cpu.Compile(quest(t, 4, 16, 16, true), 7, nil); err == nil ||
		!strings.Contains(err.Error(), "is not divided into rows") {
		t.Errorf("another number of rows: %v", err)
	}
	if _, err := cpu.Compile(quest(t, 4, 16, 16, true), 4,
		map[string]passes.Storage{"x": passes.Float16}); err == nil {
		t.Error("binary16 is taken")
	}
}

// TestBytes checks that integers of 8 bits are read and written, also in place.
func TestBytes(t *testing.T) {
	for storage, memory := range map[passes.Storage]func() (in, out any){
		passes.Int8:  func() (in, out any) { return []int8{-128, -1, 0, 126}, []int8{-127, 0, 1, 127} },
		passes.Uint8: func() (in, out any) { return []uint8{0, 1, 127, 254}, []uint8{1, 2, 128, 255} },
	} {
		b := program.NewBuilder("bytes")
		b.Output("x", b.Input("x", program.FloatType(4)).Shift(1))
		k, err := cpu.CompileFlat(built(t, b), map[string]passes.Storage{"x": storage})
		if err != nil {
			t.Fatal(err)
		}
		in, want := memory()
		if err := k.Run([]any{in}, []any{in}, testrows.InTurn); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(in) != fmt.Sprint(want) {
			t.Errorf("%s: got %v, want %v", storage, in, want)
		}
	}
}

// TestFlags checks that bools in bits have the values of others, in tiles of any number of rows.
func TestFlags(t *testing.T) {
	for _, columns := range []int{1, 3, 24, 1000} {
		n := 8 * 107
		shape := []int{n, columns}
		b := program.NewBuilder("flags")
		x := b.Input("x", program.FloatType(shape...))
		b.Output("flags", x.Gt(x.MeanRow().Scale(0.1)))
		forward := built(t, b)
		b = program.NewBuilder("flags.read")
		flags := b.Input("flags", program.Type{DType: program.Bool, Shape: shape})
		b.Output("y", flags.Select(b.Input("x", program.FloatType(shape...)), b.Const(0)))
		back := built(t, b)
		rows := numbers(rand.New(rand.NewPCG(1, 2)), n*columns, false)
		var got [2][]float32
		for i, memory := range []any{make([]bool, n*columns), make([]loops.Flags, n*columns/8)} {
			stored := map[string]passes.Storage{}
			if i == 1 {
				stored["flags"] = passes.Bits
			}
			got[i] = make([]float32, n*columns)
			write, err := cpu.Compile(forward, n, stored)
			if err != nil {
				t.Fatal(err)
			}
			read, err := cpu.CompileFlat(back, stored)
			if err != nil {
				t.Fatal(err)
			}
			err = write.Run([]any{rows}, []any{memory}, cpu.Goroutines(3))
			if err == nil {
				err = read.Run([]any{memory, rows}, []any{got[i]}, cpu.Goroutines(3))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		same(t, "in bits", back, [][]float32{got[1]}, [][]float32{got[0]})
	}
}

// TestWrongMemory checks that slices of a wrong number, type or length are an error.
func TestWrongMemory(t *testing.T) {
	p := questBack(t, 4, 16, 16, true)
	k, err := cpu.Compile(p, 4, map[string]passes.Storage{"dy": passes.BFloat16})
	if err != nil {
		t.Fatal(err)
	}
	good := func() (in, out []any) {
		return []any{make([]bool, 64), make([]uint16, 64)}, []any{make([]float32, 64)}
	}
	if in, out := good(); k.Run(in, out, testrows.InTurn) != nil {
		t.Error("what fits is refused")
	}
	for i, wrong := range []func(in, out []any) ([]any, []any){
		func(in, out []any) ([]any, []any) { return in[:1], out },
		func(in, out []any) ([]any, []any) { return in, nil },
		func(in, out []any) ([]any, []any) { in[1] = make([]float32, 64); return in, out },
		func(in, out []any) ([]any, []any) { in[0] = make([]bool, 63); return in, out },
		func(in, out []any) ([]any, []any) { out[0] = make([]uint16, 64); return in, out },
		func(in, out []any) ([]any, []any) { out[0] = 7; return in, out },
	} {
		if in, out := wrong(good()); k.Run(in, out, testrows.InTurn) == nil {
			t.Errorf("memory %d is taken", i)
		}
	}
}

// TestProgram checks that the pass's program has the inputs and outputs of the compiled one.
func TestProgram(t *testing.T) {
	p := quest(t, 4, 16, 16, true)
	k, err := cpu.Compile(p, 4, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := k.Program(); !slices.EqualFunc(got.Inputs, p.Inputs,
		func(a, b program.Input) bool { return a.Name == b.Name }) || len(got.Outputs) != len(p.Outputs) {
		t.Errorf("inputs %v, outputs %v", got.Inputs, got.Outputs)
	}
}
