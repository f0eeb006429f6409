package model

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/matmul"
	"github.com/cage-qat/cage/host/compute/plan"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/kernels"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// stepProgram returns the program of a model's loss and all gradients.
func stepProgram(t testing.TB, m *transformer, shape network.Shape) *program.Program {
	t.Helper()
	names := lists.Map(m.Params(), func(p architecture.Param) string { return p.Name })
	p, err := planned(m, shape, names, plan.Options{Kernels: kernels.For(0)})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func planned(m *transformer, shape network.Shape, wrt []string, o plan.Options) (*program.Program,
	error) {
	p, err := m.Program(ProgramOptions{Shape: shape}, wrt...)
	if err != nil {
		return nil, err
	}
	calls := m.Calls(shape)
	o.Sums, o.Recompute = calls.Sums, calls.Recompute
	return plan.Prepare(p, o)
}

// runPlan computes the mean loss of a batch and its gradients by package plan.
func runPlan(t *testing.T, m *transformer, shape network.Shape, weights [][]float32,
	batch []int32) [][]float32 {
	t.Helper()
	step := stepProgram(t, m, shape)
	o := plan.Options{Arithmetic: matmul.Float32, Kernels: kernels.For(m.LossTokens)}
	p, err := plan.Compile(step, o)
	if err != nil {
		t.Fatal(err)
	}
	in, out := []any{batch}, []any{make([]float32, 1)}
	for _, w := range weights {
		in, out = append(in, w), append(out, make([]float32, len(w)))
	}
	if err := p.Run(in, out, inTurn); err != nil {
		t.Fatal(err)
	}
	return lists.Map(out, func(x any) []float32 { return x.([]float32) })
}

// TestSomeGradients checks the gradients of each parameter alone, without those that kernels
// compute beside them.
func TestSomeGradients(t *testing.T) {
	eachLanguage(t, func(t *testing.T, language Language) {
		m := language.(*transformer)
		const context = 6
		shape := network.Shape{Batch: 2, Context: context}
		batch := hashedTokens(0, 2*(context+1), m.Vocab)
		in := []any{batch}
		for _, w := range hashedWeights(m.params) {
			in = append(in, w)
		}
		gradients := func(names ...string) (list [][]float32) {
			t.Helper()
			o := plan.Options{Arithmetic: matmul.Float32, Kernels: kernels.For(0)}
			step, err := planned(m, shape, names, o)
			if err != nil {
				t.Fatal(err)
			}
			p, err := plan.Compile(step, o)
			if err != nil {
				t.Fatal(err)
			}
			out := lists.Map(step.Outputs, func(o program.Output) any {
				return make([]float32, step.TypeOf(o.Value).Size())
			})
			if err := p.Run(in, out, inTurn); err != nil {
				t.Fatal(err)
			}
			return lists.Map(out[1:], func(x any) []float32 { return x.([]float32) })
		}
		names := lists.Map(m.params, func(p architecture.Param) string { return p.Name })
		for i, want := range gradients(names...) {
			closeTo(t, names[i], gradients(names[i])[0],
				lists.Map(want, func(v float32) float64 { return float64(v) }), 1e-6)
		}
	})
}

// TestRecomputeTakesLessMemory checks that what a backward pass computes again is not kept.
func TestRecomputeTakesLessMemory(t *testing.T) {
	memory := map[architecture.Recompute]int{}
	for _, recompute := range []architecture.Recompute{architecture.RecomputeNone,
		architecture.RecomputeAttention, architecture.RecomputeBlocks} {
		m := newLlama(architecture.Settings{Layers: 6, Heads: 2, Width: 32, Vocab: 64})
		m.Recompute = recompute
		step := stepProgram(t, m, network.Shape{Batch: 4, Context: 64})
		p, err := plan.Compile(step, plan.Options{Arithmetic: matmul.Float32, Kernels: kernels.For(0)})
		if err != nil {
			t.Fatal(err)
		}
		memory[recompute] = p.Memory()
	}
	none, attention, blocks := memory[architecture.RecomputeNone],
		memory[architecture.RecomputeAttention], memory[architecture.RecomputeBlocks]
	if !(attention < none && blocks < none/2) {
		t.Errorf("%d bytes, %d if attention is computed again, %d if blocks are", none, attention, blocks)
	}
}

// TestRecomputePlanned checks that plans compute the same bits again.
func TestRecomputePlanned(t *testing.T) {
	for _, build := range []func(architecture.Settings) *transformer{newLlama, newOLMo2} {
		var want [][]float32
		for _, recompute := range []architecture.Recompute{architecture.RecomputeNone,
			architecture.RecomputeAttention, architecture.RecomputeBlocks} {
			m := build(tiny)
			m.Recompute = recompute
			got := runPlan(t, m, network.Shape{Batch: 3, Context: 8}, hashedWeights(m.params),
				hashedTokens(0, 3*9, m.Vocab))
			if want == nil {
				want = got
			}
			for i := range want {
				if !slices.Equal(got[i], want[i]) {
					t.Errorf("%s, recompute %q: output %d differs", m.Kind, recompute, i)
				}
			}
		}
	}
}

func inTurn(n int, f func(i int)) {
	for i := range n {
		f(i)
	}
}

// callTolerances are the errors of kernels of calls by arithmetic, relative to the largest element.
var callTolerances = map[matmul.Arithmetic]float64{matmul.Float32: 2e-6, matmul.BFloat16: 0.02}

// TestCallKernels compares the kernels of the calls in programs of models, and of their adjoints,
// with the meanings of the calls, on random numbers and shapes.
func TestCallKernels(t *testing.T) {
	kinds, losses := 0, map[string]bool{}
	eachLanguage(t, func(t *testing.T, language Language) {
		m, done := language.(*transformer), map[string]int{}
		rng := rand.New(rand.NewPCG(uint64(len(t.Name())), uint64(m.Vocab)))
		shape := network.Shape{Batch: 1 + rng.IntN(3), Context: 16 + rng.IntN(40),
			Documents: rng.IntN(2) == 0}
		kinds++
		switch kinds % 3 {
		case 0:
			shape.Head.Teacher = network.Teacher{Settings: m.Settings, Distillation: network.Distillation{
				Beta: []float64{0, 0.3, 1}[rng.IntN(3)], Temperature: 0.5 + rng.Float64(),
				Weight: 1 - rng.Float64()/2, Squared: rng.IntN(2) == 0}}
		case 1:
			shape.Head.Sampled = true
		}
		step := stepProgram(t, m, shape)
		for i := range step.Nodes {
			c := step.Nodes[i].Attr.Call
			if c == nil || c.Adds && rng.IntN(2) == 0 {
				continue
			}
			if done[c.Name]++; done[c.Name] > 2 {
				continue
			}
			for arithmetic, tolerance := range callTolerances {
				compareCall(t, c, m.Vocab, rng, arithmetic, tolerance, kernels.For(0))
			}
		}
		for _, name := range []string{network.Linear, network.RMSNorm, network.Rope, network.Attention,
			network.GatedUnit} {
			if done[name] == 0 || done[name+".vjp"] == 0 {
				t.Errorf("%s is not among the calls: %v", name, done)
			}
		}
		for name := range done {
			losses[name] = true
		}
	})
	for _, name := range []string{network.CrossEntropy, network.SoftmaxDistillation, network.Draw} {
		if !losses[name] {
			t.Errorf("%s is not among the calls", name)
		}
	}
}

// compareCall compares the kernel of a call with its meaning.
func compareCall(t *testing.T, c *program.Call, vocabulary int, rng *rand.Rand,
	arithmetic matmul.Arithmetic, tolerance float64, table kernels.Table) {
	t.Helper()
	b := program.NewBuilder(c.Name)
	var args []program.Value
	var in, out []any
	exact := map[string]reference.Tensor{}
	for _, input := range c.Meaning.Inputs {
		args = append(args, b.Input(input.Name, input.Type))
		size := int(input.Type.Size())
		if input.Type.DType == program.Uint { // a key
			in, exact[input.Name] = append(in, []uint32{1, 2}), reference.Uints([]uint32{1, 2}, 2)
			continue
		}
		if input.Name == "start" || input.Name == "first" {
			values := slices.Repeat([]int32{2}, size) // tokens come after two others
			in, exact[input.Name] = append(in, values), reference.Ints(values, input.Type.Shape...)
			continue
		}
		if input.Type.DType == program.Int {
			values := make([]int32, size)
			for i := range values {
				values[i] = int32(rng.IntN(vocabulary))
				if input.Name == "segments" {
					values[i] = int32(3 * (i % input.Type.Shape[1]) / input.Type.Shape[1])
				}
			}
			in, exact[input.Name] = append(in, values), reference.Ints(values, input.Type.Shape...)
			continue
		}
		values, wide := make([]float32, size), make([]float64, size)
		for i := range values {
			values[i] = float32(rng.NormFloat64())
			if c.Setting == "silu" && i%5 == 0 { // exp(−x) overflows
				values[i] *= 200
			}
			wide[i] = float64(values[i])
		}
		in, exact[input.Name] = append(in, values), reference.Floats(wide, input.Type.Shape...)
	}
	for i, v := range b.Call(c, args...) {
		b.Output(c.Meaning.Outputs[i].Name, v)
		if v.Type().DType == program.Int {
			out = append(out, make([]int32, v.Type().Size()))
		} else {
			out = append(out, make([]float32, v.Type().Size()))
		}
	}
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	want, err := reference.Run(p, exact)
	if err != nil {
		t.Fatal(err)
	}
	called, watched := false, kernels.Table{}
	for name, kernel := range table {
		watched[name] = func(c *program.Call, o plan.Options) (*plan.Kernel, error) {
			called = true
			return kernel(c, o)
		}
	}
	planned, err := plan.Compile(p, plan.Options{Arithmetic: arithmetic, Kernels: watched})
	if err == nil {
		err = planned.Run(in, out, inTurn)
	}
	if err != nil {
		t.Fatal(err)
	}
	if !called {
		t.Errorf("%s: no kernel was called", c.Name)
	}
	for i, o := range p.Outputs {
		if drawn, ok := out[i].([]int32); ok { // a sum of two that are nearly equal may round either way
			wrong := 0
			for j, column := range want[o.Name].Ints {
				if int64(drawn[j]) != column {
					wrong++
				}
			}
			if float64(wrong) > 10*tolerance*float64(len(drawn)) {
				t.Errorf("%s in %s: %d of %d columns differ", c.Name, arithmetic, wrong, len(drawn))
			}
			continue
		}
		got, exact := out[i].([]float32), architecture.Float32s(want[o.Name].Floats)
		if d := engine.Distance(got, exact); !(d <= tolerance) {
			t.Errorf("%s in %s: output %s differs by %.2g of its norm in\n%s", c.Name, arithmetic, o.Name,
				d, p)
		}
	}
}
