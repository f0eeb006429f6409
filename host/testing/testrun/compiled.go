package testrun

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/sdk/program"
)

// device is opened by the first test that needs it, and shared by all tests of the process.
var device = sync.OnceValues(func() (*engine.Device,
	error) {
	return engine.Open(testdevice.Kind(), engine.Options{})
})

// Device returns the device for tests: the CPU, unless testdevice names another.
func Device(t testing.TB) *engine.Device {
	t.Helper()
	d, err := device()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Plan returns the plan of a configuration's step, with programs from real plugins. model.vocab
// must be set, because the data is not read. pieces is as in build.Request.
func Plan(t testing.TB, cfg *config.Config, pieces ...int) step.Plan {
	t.Helper()
	m, err := build.Model(cfg)
	if err != nil {
		t.Fatal(err)
	}
	programs, err := build.Collect(context.Background(),
		build.Request{Config: cfg, Model: m, Batch: build.ReplicaBatch(cfg), Pieces: pieces,
			Finder: Finder(t)})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := build.Plan(cfg, m, programs)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// Compile compiles a plan for the device, and closes the result when the test ends.
func Compile(t testing.TB, plan step.Plan) *step.Compiled {
	t.Helper()
	c, err := step.Compile(Device(t), plan)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// Upload creates a training state from parameters in the model's order. The optimizer's state is
// zero.
func Upload(t testing.TB, c *step.Compiled, params [][]float32) *step.State {
	t.Helper()
	tensors := map[string]step.Tensor{}
	for i, p := range c.Plan().Model.Params() {
		name := "param/" + p.Name
		tensors[name] = step.Tensor{Name: name, Dims: p.Dims, Data: params[i]}
		for _, s := range c.Plan().Rules[i].Optimizer.State {
			name := "state/" + p.Name + "/" + s.Name
			tensors[name] = step.Tensor{Name: name, Dims: s.Shape,
				Data: make([]float32, program.FloatType(s.Shape...).Size())}
		}
	}
	s, err := c.Upload(func(name string) (step.Tensor, error) { return tensors[name], nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// Tensors returns copies of all tensors of a state.
func Tensors(t testing.TB, c *step.Compiled, s *step.State) []step.Tensor {
	t.Helper()
	var list []step.Tensor
	for _, x := range c.Stored(s) {
		data, err := x.Read()
		if err != nil {
			t.Fatalf("%s: %v", x.Name, err)
		}
		list = append(list, step.Tensor{Name: x.Name, Dims: x.Dims, Data: slices.Clone(data)})
	}
	return list
}

// Download returns copies of all tensors of a state by name.
func Download(t testing.TB, c *step.Compiled, s *step.State) map[string][]float32 {
	t.Helper()
	out := map[string][]float32{}
	for _, x := range Tensors(t, c, s) {
		out[x.Name] = x.Data
	}
	return out
}

// Params draws parameters from a seed. They are in the model's order.
func Params(m model.Model, seed uint64) [][]float32 {
	var out [][]float32
	for _, p := range m.Params() {
		out = append(out, p.Init(seed))
	}
	return out
}

// Tokens returns a batch of shape [rows, columns] of token ids below vocab, determined by the seed.
func Tokens(seed uint64, rows, columns, vocab int) []int32 {
	out := make([]int32, rows*columns)
	for i := range out {
		seed = seed*6364136223846793005 + 1442695040888963407
		out[i] = int32((seed >> 33) % uint64(vocab))
	}
	return out
}
