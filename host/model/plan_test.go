package model

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/testing/testdevice"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// stepProgram returns the program of a model's loss and gradients, with sums in the named calls.
func stepProgram(
	t testing.TB, m *transformer, shape network.Shape, sums []string,
) *program.Program {
	t.Helper()
	forward, err := network.New(m.Settings, shape, nil)
	if err != nil {
		t.Fatal(err)
	}
	names := lists.Map(m.Params(), func(p architecture.Param) string { return p.Name })
	vjp, err := autodiff.VJP(forward, network.Losses, names...)
	if err != nil {
		t.Fatal(err)
	}
	b := program.NewSimplifier(forward.Name)
	in := transform.Inputs(b, forward, nil)[:len(forward.Inputs)]
	losses := transform.Inline(b, forward, in...)[network.Losses]
	factor := 1 / float64(shape.Batch*shape.Context)
	each := b.Const(factor).Broadcast(losses.Shape(), nil)
	gradients := transform.Inline(b, vjp, append(in, each)...)
	b.Output("loss", losses.ReduceSum(0, 1).Scale(factor))
	for _, name := range names {
		b.Output(name, gradients[autodiff.Prefix+name])
	}
	p, err := b.Build()
	if err == nil {
		p, err = passes.AddInCalls(p, sums...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestCallKernels compares the kernels of the calls in programs of models with the meanings of the
// calls, on random numbers and shapes.
func TestCallKernels(t *testing.T) {
	type precision struct {
		device.Precision
		tolerance float64
	}
	for _, at := range []precision{{device.Float32, 2e-6}, {device.BFloat16, 0.02}} {
		d := testdevice.Open(t, engine.Options{Precision: at.Precision})
		eachLanguage(t, func(t *testing.T, language Language) {
			m, done := language.(*transformer), map[string]int{}
			rng := rand.New(rand.NewPCG(uint64(len(t.Name())), uint64(m.Vocab)))
			shape := network.Shape{Batch: 1 + rng.IntN(3), Context: 16 + rng.IntN(40),
				Documents: rng.IntN(2) == 0}
			step := stepProgram(t, m, shape, sums)
			for i := range step.Nodes {
				c := step.Nodes[i].Attr.Call
				if c == nil || c.Adds && rng.IntN(2) == 0 {
					continue
				}
				if done[c.Name]++; done[c.Name] > 2 {
					continue
				}
				compareCall(t, d, c, m.Vocab, rng, at.tolerance)
			}
			if len(done) < 2*len(callKernels) {
				t.Errorf("the calls are %v", done)
			}
		})
	}
}

// compareCall compares the kernel of a call with its meaning.
func compareCall(t *testing.T, d *engine.Device, c *program.Call, vocabulary int, rng *rand.Rand,
	tolerance float64) {
	t.Helper()
	b := program.NewBuilder(c.Name)
	var args []program.Value
	var buffers []*engine.Buffer
	in := map[string]reference.Tensor{}
	for _, input := range c.Meaning.Inputs {
		args = append(args, b.Input(input.Name, input.Type))
		size := int(input.Type.Size())
		if input.Type.DType == program.Int {
			values := make([]int32, size)
			for i := range values {
				values[i] = int32(rng.IntN(vocabulary))
				if input.Name == "segments" {
					values[i] = int32(3 * (i % input.Type.Shape[1]) / input.Type.Shape[1])
				}
			}
			in[input.Name] = reference.Ints(values, input.Type.Shape...)
			buffers = append(buffers, testdevice.Upload(t, d, values, input.Type.Shape...))
		} else {
			values, exact := make([]float32, size), make([]float64, size)
			for i := range values {
				values[i] = float32(rng.NormFloat64())
				exact[i] = float64(values[i])
			}
			in[input.Name] = reference.Floats(exact, input.Type.Shape...)
			buffers = append(buffers, testdevice.Upload(t, d, values, input.Type.Shape...))
		}
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
	called := false
	kernels := maps.Clone(callKernels)
	for name, kernel := range kernels {
		kernels[name] = func(c *program.Call, in []*graph.Node, sum *graph.Node) ([]*graph.Node,
			lower.CallBack) {
			called = true
			return kernel(c, in, sum)
		}
		if kernel == nil {
			kernels[name], called = nil, called || strings.HasPrefix(c.Name, name)
		}
	}
	got := testdevice.Evaluate(t, d, buffers, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		return append(lower.WithCalls(g, p, in, kernels), lower.WithCalls(g, p, in, nil)...)
	})
	if !called {
		t.Errorf("%s: no kernel was called", c.Name)
	}
	for i, o := range p.Outputs {
		exact := architecture.Float32s(want[o.Name].Floats)
		kernel, plain := engine.Distance(got[i], exact), engine.Distance(got[len(p.Outputs)+i], exact)
		if !(kernel <= tolerance && plain <= 2e-6) {
			t.Errorf("%s: output %s differs by %.2g of its norm, and by %.2g without kernels, in\n%s",
				c.Name, o.Name, kernel, plain, p)
		}
	}
}

// BenchmarkStepOfPrograms measures the loss and all gradients of a model's program, with kernels
// for all of its calls, for all but one kind of them, or for none, against those of the model:
// medians of the processor's time, which other processes disturb less, with steps of both in turn.
func BenchmarkStepOfPrograms(b *testing.B) {
	all := slices.Sorted(maps.Keys(callKernels))
	without := map[string][]string{"kernels=all": nil, "kernels=none": all}
	for _, name := range all {
		without["kernels=all_but_"+name] = []string{name}
	}
	for _, precision := range []device.Precision{device.Float32, device.BFloat16} {
		for _, width := range []int{256, 512} {
			for _, name := range slices.Sorted(maps.Keys(without)) {
				b.Run(fmt.Sprintf("%s/width=%d/%s", precision, width, name), func(b *testing.B) {
					m := newLlama(architecture.Settings{Layers: 4, Heads: 4, Width: width, Vocab: 256})
					benchmarkProgram(b, m, precision, without[name])
				})
			}
		}
	}
}

func benchmarkProgram(b *testing.B, m *transformer, precision device.Precision, without []string) {
	const context, batch = 256, 8
	kernels := maps.Clone(callKernels)
	for _, name := range without {
		delete(kernels, name)
	}
	names := slices.DeleteFunc(slices.Clone(sums), func(s string) bool {
		return slices.Contains(without, s)
	})
	p := stepProgram(b, m, network.Shape{Batch: batch, Context: context}, names)
	builds := []engine.BuildFunc{
		func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
			loss := m.Loss(in[1:], in[0], nil)
			return append([]*graph.Node{loss}, graph.Gradient(loss, in[1:]...)...)
		},
		func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			return lower.WithCalls(g, p, in, kernels)
		},
	}
	var runs []func()
	for _, build := range builds {
		d := testdevice.Open(b, engine.Options{Precision: precision})
		buffers := []*engine.Buffer{testdevice.Upload(b, d,
			hashedTokens(0, batch*(context+1), m.Vocab), batch, context+1)}
		for _, p := range m.Params() {
			buffers = append(buffers, testdevice.Upload(b, d, p.Init(1), p.Dims...))
		}
		runs = append(runs, compiledStep(b, d, buffers, build))
	}
	times := make([][]float64, 2)
	ratios := []float64{}
	for i := 0; b.Loop(); i++ {
		for j := range runs {
			j = (i + j) % 2
			start := processorSeconds(b)
			runs[j]()
			times[j] = append(times[j], processorSeconds(b)-start)
		}
		ratios = append(ratios, times[1][i]/times[0][i])
	}
	median := func(x []float64) float64 { slices.Sort(x); return x[len(x)/2] }
	b.ReportMetric(median(times[0]), "s/model")
	b.ReportMetric(median(times[1]), "s/program")
	b.ReportMetric(median(ratios), "program/model")
	b.ReportMetric(times[1][0]/times[0][0], "least/least")
}

func compiledStep(b *testing.B, d *engine.Device, buffers []*engine.Buffer,
	build engine.BuildFunc) func() {
	var specs []engine.Spec
	for i, buffer := range buffers {
		specs = append(specs, engine.Spec{Name: fmt.Sprint("input", i), Shape: buffer.Shape()})
	}
	step, err := d.Compile("step", specs, build)
	if err != nil {
		b.Fatal(err)
	}
	run := func() {
		outputs, err := step.Run(buffers, nil)
		if err == nil {
			err = engine.FinalizeAll(outputs...)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	run() // compiles, and allocates
	return run
}

// processorSeconds returns the time that the process has computed.
func processorSeconds(b *testing.B) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}
