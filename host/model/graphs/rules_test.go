package graphs

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/fakequant"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/program/transform"
	"github.com/cage-qat/cage/sdk/spec"
)

// TestRules compares the rules of the calls in programs of models, and of their adjoints, with the
// meanings of the calls, on random numbers.
func TestRules(t *testing.T) {
	const vocabulary = 13
	done := map[string]int{}
	for i, kind := range architecture.Languages {
		s := architecture.Settings{Kind: kind, Layers: 2, Heads: 4, KVHeads: 2, Width: 16, Hidden: 24,
			Vocab: vocabulary}
		s.FillIn()
		if kind == architecture.KindGemma2 { // caps low enough to matter
			s.Window, s.ScoreCap, s.LogitCap = 4, 0.7, 1.5
		}
		if i%2 == 0 {
			s.RopePairs = architecture.Interleaved
		}
		distilled := network.Shape{Batch: 2, Context: 12}
		distilled.Head.Teacher = network.Teacher{Settings: s, Distillation: network.Distillation{
			Beta: 0.3, Temperature: 2, Weight: 0.7}}
		for _, shape := range []network.Shape{{Batch: 2, Context: 12, Documents: true}, distilled,
			{Batch: 2, Context: 12, Head: network.Head{Sampled: true}},
			{Task: network.Score, Batch: 2, Context: 9, Targets: 6},
			{Task: network.Score, Batch: 2, Context: 9, Targets: 6, Parts: true},
			{Task: network.Decode, Batch: 2, Context: 3, Cache: 8}} {
			p, err := network.New(s, shape, network.Quantizers{})
			if err == nil && shape.Task == network.Predict {
				names := lists.Map(s.Params(), func(p architecture.Param) string { return p.Name })
				p, err = network.Gradient(p, names...)
			}
			rules := For(6) // two chunks of twelve tokens
			if err == nil {
				p, err = transform.Expand(p, func(c *program.Call) bool {
					_, forward := rules[c.Name]
					return forward || c.Of != nil && c.Of.Of == nil && rules[c.Of.Name].Forward != nil
				}, "")
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range p.Nodes {
				c := n.Attr.Call
				if c == nil {
					continue
				}
				key := fmt.Sprint(c.Name, kind, c.Setting, len(c.Meaning.Inputs), len(c.Meaning.Outputs))
				if done[key]++; done[key] > 1 {
					continue
				}
				done[c.Name]++
				t.Run(fmt.Sprint(kind, " ", c.Name), func(t *testing.T) { compareRule(t, c, vocabulary) })
			}
		}
	}
	for name := range For(0) {
		if name != network.OfCodes && done[name] == 0 {
			t.Errorf("there is no call of %s", name)
		}
	}
}

// compareRule compares the rule of a call, or of an adjoint, with the meaning.
func compareRule(t *testing.T, c *program.Call, vocabulary int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, uint64(len(c.Name))))
	b := program.NewSimplifier("call")
	var args []program.Value
	in := map[string]reference.Tensor{}
	for _, input := range c.Meaning.Inputs {
		args = append(args, b.Input(input.Name, input.Type))
		dims, n := input.Type.Shape, int(input.Type.Size())
		ints := func(value func(i int) int) reference.Tensor {
			return reference.Ints(lists.Make(n, func(i int) int32 { return int32(value(i)) }), dims...)
		}
		x := reference.Floats(lists.Make(n, func(int) float64 {
			return float64(float32(rng.NormFloat64()))
		}), dims...)
		switch {
		case input.Type.DType == program.Uint: // a key
			x = reference.Uints([]uint32{1, 2}, 2)
		case input.Name == "start" || input.Name == "first": // tokens come after two others
			x = ints(func(int) int { return 2 })
		case input.Name == "segments" || input.Name == "parts":
			x = ints(func(i int) int { return 3 * (i % dims[1]) / dims[1] })
		case input.Name == "positions":
			x = ints(func(i int) int { return i % dims[1] })
		case input.Type.DType == program.Int:
			x = ints(func(int) int { return rng.IntN(vocabulary) })
		}
		in[input.Name] = x
	}
	for i, v := range b.Call(c, args...) {
		b.Output(c.Meaning.Outputs[i].Name, v)
	}
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	want, err := reference.Run(p, in)
	if err != nil {
		t.Fatal(err)
	}
	for precision, tolerance := range map[device.Precision]float64{device.Float32: 2e-6,
		device.BFloat16: 0.02} {
		d := testdevice.Open(t, engine.Options{Precision: precision, Kernels: device.GraphKernels})
		buffers := lists.Map(p.Inputs, func(input program.Input) *engine.Buffer {
			x := in[input.Name]
			switch input.Type.DType {
			case program.Float:
				return testdevice.Upload(t, d, architecture.Float32s(x.Floats), input.Type.Shape...)
			case program.Uint:
				return testdevice.Upload(t, d, lists.Map(x.Ints, func(v int64) uint32 { return uint32(v) }),
					input.Type.Shape...)
			}
			return testdevice.Upload(t, d, lists.Map(x.Ints, func(v int64) int32 { return int32(v) }),
				input.Type.Shape...)
		})
		got := testdevice.Evaluate(t, d, buffers, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			out := For(6).Lower(g, p, in, "")
			return lists.Map(p.Outputs, func(o program.Output) *graph.Node {
				return graph.ConvertDType(out[o.Name], shapes.Float32)
			})
		})
		for i, o := range p.Outputs {
			exact := architecture.Float32s(want[o.Name].Floats)
			if p.TypeOf(o.Value).DType != program.Float { // nearly equal sums may round either way
				exact = lists.Map(want[o.Name].Ints, func(v int64) float32 { return float32(v) })
				wrong := 0
				for j, column := range exact {
					if got[i][j] != column {
						wrong++
					}
				}
				if wrong > 1 {
					t.Errorf("%s: %d of %d columns differ", precision, wrong, len(exact))
				}
			} else if apart := engine.Distance(got[i], exact); !(apart <= tolerance) {
				t.Errorf("%s: output %s differs by %.2g of its norm in\n%s", precision, o.Name, apart, p)
			}
		}
	}
}

// TestJoinedAgain checks that a gate is joined with the quantizer behind it, forward and backward,
// whether the backward pass computes values again or not.
func TestJoinedAgain(t *testing.T) {
	s := architecture.Settings{Kind: architecture.KindLlama, Layers: 2, Heads: 2, Width: 64,
		Hidden: 96, Vocab: 13}
	s.FillIn()
	shape := network.Shape{Batch: 4, Context: 16}
	q, err := fakequant.New(rounding(t, 64, 96))
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]*program.Call{"layers.0.mlp.down.input": q.Call(true),
		"layers.1.mlp.down.input": q.Call(true)}
	p, err := network.New(s, shape, network.Quantizers{Calls: calls})
	if err == nil {
		names := lists.Map(s.Params(), func(p architecture.Param) string { return p.Name })
		p, err = network.Gradient(p, names...)
	}
	if err != nil {
		t.Fatal(err)
	}
	d := testdevice.Open(t, engine.Options{Precision: device.BFloat16, Kernels: device.BodyKernels})
	for _, again := range []string{"", network.SelfAttention, network.Block} {
		joined := false
		specs := lists.Map(p.Inputs, func(in program.Input) engine.Spec {
			dtype := shapes.Float32
			if in.Type.DType == program.Int {
				dtype = shapes.Int32
			}
			return engine.Spec{Name: in.Name, Shape: shapes.Make(dtype, in.Type.Shape...)}
		})
		e, err := d.Compile("gradients", specs, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			out := For(0).Lower(g, p, in, again)
			for _, k := range lower.KernelsIn(g) {
				stores := strings.Count(k.Text, "tt.store")
				// The kernel of both backward passes writes the adjoints of both operands of the gate.
				joined = joined || strings.HasPrefix(k.Name, "cage_quantize_backward") && stores == 2
			}
			return lists.Map(p.Outputs, func(o program.Output) *graph.Node { return out[o.Name] })
		})
		if err != nil {
			t.Fatal(err)
		}
		e.Close()
		if !joined {
			t.Errorf("with %q again, there is no joined kernel", again)
		}
	}
}

// rounding returns a quantizer to multiples of an eighth, whose gradient is that of x where |x| <
// 4.
func rounding(t *testing.T, rows, columns int) spec.Quantizer {
	t.Helper()
	b := program.NewBuilder("quantize")
	x := b.Input(spec.InputX, program.FloatType(rows, columns))
	b.Output(spec.OutputValue, x.Clip(-4, 4).Scale(8).Round().Scale(1.0/8))
	b.Output(spec.OutputSurrogate, x.Abs().Lt(b.Const(4)).Select(x, b.Const(0)))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return spec.Quantizer{Program: p}
}
