package executortest

import (
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cage-qat/cage/host/compute/cpu"
	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/compute/matmul"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/host/compute/plan"
	"github.com/cage-qat/cage/host/compute/refresh"
	"github.com/cage-qat/cage/host/testing/testkernel"
	"github.com/cage-qat/cage/internal/testing/randprog"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// kernels is the executor of package triton. Package testkernel interprets its kernels.
type kernels struct{}

func (kernels) Compile(p *program.Program) (any, error) {
	k, err := testkernel.Compile(p, testkernel.Rows(p), nil)
	return k, refusal(err)
}

func (kernels) Run(_ int, calls []call) error {
	for _, c := range calls {
		in := map[string]reference.Tensor{}
		for _, input := range c.Program.Inputs {
			in[input.Name] = wide(c.Inputs[input.Name], input.Type.Shape)
		}
		out, err := c.Kernel.(*testkernel.Program).Run(in)
		if err != nil {
			return err
		}
		for name, to := range c.Outputs {
			for i, x := range out[name].Floats {
				to[i] = float32(x)
			}
		}
	}
	return nil
}

// kernelSubject refuses rows of more than 16,384 elements and rotations of few elements.
var kernelSubject = subject{executor: kernels{},
	Accepts: map[randprog.Family]float64{randprog.Elementwise: 0.8}}

func TestKernels(t *testing.T) { testExecutor(t, kernelSubject) }

// byRows is the executor of package cpu for a given number of rows. The reference implementation
// computes the part that needs whole tensors.
type byRows struct{}

type rowsKernel struct {
	passes.Division
	kernel *cpu.Pass
}

func (byRows) Compile(p *program.Program) (any, error) {
	count := testkernel.Rows(p)
	d, err := passes.DivideRows(p, count, func(passes.Layout) bool { return true })
	if err != nil || d.Rows == nil {
		return rowsKernel{d, nil}, err
	}
	k, err := cpu.Compile(d.Rows, count, nil)
	return rowsKernel{d, k}, refusal(err)
}

func (byRows) Run(threads int, calls []call) error {
	for _, c := range calls {
		k := c.Kernel.(rowsKernel)
		// outputs may share the memory of inputs
		known, written := maps.Clone(c.Inputs), map[string][]float32{}
		if k.Whole != nil {
			in := map[string]reference.Tensor{}
			for _, input := range c.Program.Inputs {
				in[input.Name] = wide(c.Inputs[input.Name], input.Type.Shape)
			}
			out, err := reference.Run32(k.Whole, in)
			if err != nil {
				return err
			}
			for name, value := range out {
				to := make([]float32, value.Len())
				for i, x := range append(value.Floats, floats(value.Ints)...) {
					to[i] = float32(x)
				}
				if _, ok := c.Outputs[name]; ok {
					written[name] = to
				} else {
					known[name] = to
				}
			}
		}
		if err := k.run(threads, known, written); err != nil {
			return err
		}
		for name, x := range written {
			copy(c.Outputs[name], x)
		}
	}
	return nil
}

// run computes the part that needs one row at a time.
func (k rowsKernel) run(threads int, known, written map[string][]float32) error {
	if k.kernel == nil {
		return nil
	}
	var in, out []any
	for _, input := range k.Rows.Inputs {
		if in = append(in, known[input.Name]); input.Type.DType == program.Bool {
			bools := make([]bool, len(known[input.Name]))
			for i, x := range known[input.Name] {
				bools[i] = x != 0
			}
			in[len(in)-1] = bools
		}
	}
	for _, o := range k.Rows.Outputs {
		written[o.Name] = make([]float32, k.Rows.TypeOf(o.Value).Size())
		out = append(out, written[o.Name])
	}
	return k.kernel.Run(in, out, goroutines(threads))
}

func wide(x []float32, shape []int) reference.Tensor {
	data := make([]float64, len(x))
	for i, v := range x {
		data[i] = float64(v)
	}
	return reference.Floats(data, shape...)
}

func floats(x []int64) []float64 {
	list := make([]float64, len(x))
	for i, v := range x {
		list[i] = float64(v)
	}
	return list
}

// rowsSubject refuses operations that move elements.
var rowsSubject = subject{executor: byRows{},
	Accepts: map[randprog.Family]float64{randprog.Elementwise: 0.8}}

func TestRows(t *testing.T) { testExecutor(t, rowsSubject) }

// refreshes is the executor of package refresh, which computes matrix products and QR in float32
// and everything else in float64.
type refreshes struct{}

func (refreshes) Compile(p *program.Program) (any, error) { return p, nil }

func (refreshes) Run(_ int, calls []call) error {
	for _, c := range calls {
		in := map[string]reference.Tensor{}
		for _, input := range c.Program.Inputs {
			in[input.Name] = wide(c.Inputs[input.Name], input.Type.Shape)
		}
		out, err := refresh.Execute(c.Program, in)
		if err != nil {
			return err
		}
		for name, value := range out {
			for i, v := range value.Floats {
				c.Outputs[name][i] = float32(v)
			}
		}
	}
	return nil
}

var refreshSubject = subject{
	executor: refreshes{}, Double: true,
	Accepts: map[randprog.Family]float64{randprog.Elementwise: 1, randprog.General: 1},
}

func TestRefresh(t *testing.T) { testExecutor(t, refreshSubject) }

// flat is the executor of package cpu with [cpu.CompileFlat], which chooses the rows.
type flat struct{}

func (flat) Compile(p *program.Program) (any, error) {
	k, err := cpu.CompileFlat(p, nil)
	return k, refusal(err)
}

func (flat) Run(threads int, calls []call) error {
	var list []cpu.Call
	for _, c := range calls {
		call := cpu.Call{Pass: c.Kernel.(*cpu.Pass)}
		for _, in := range c.Program.Inputs {
			call.Inputs = append(call.Inputs, c.Inputs[in.Name])
		}
		for _, o := range c.Program.Outputs {
			call.Outputs = append(call.Outputs, c.Outputs[o.Name])
		}
		list = append(list, call)
	}
	return cpu.Run(list, goroutines(threads))
}

// goroutines returns a function that runs tasks on count goroutines, in ascending order.
func goroutines(count int) loops.Parallel {
	return func(n int, f func(i int)) {
		var next atomic.Int64
		work := func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				f(int(i - 1))
			}
		}
		var others sync.WaitGroup
		for range count - 1 {
			others.Go(work)
		}
		work()
		others.Wait()
	}
}

// refusal adds errRefused to the error of a refused program.
func refusal(err error) error {
	var refused *passes.Refusal
	if errors.As(err, &refused) {
		return errors.Join(errRefused, err)
	}
	return err
}

var sliceSubject = subject{executor: flat{},
	Accepts: map[randprog.Family]float64{randprog.Elementwise: 1}}

// TestSlices tests package cpu directly, on slices between guard elements that must not be written.
func TestSlices(t *testing.T) { testExecutor(t, sliceSubject) }

// plans is the executor of package plan.
type plans struct{}

func (plans) Compile(p *program.Program) (any, error) {
	return plan.Compile(p, plan.Options{Arithmetic: matmul.Float32})
}

func (plans) Run(threads int, calls []call) error {
	for _, c := range calls {
		var in, out []any
		for _, input := range c.Program.Inputs {
			in = append(in, c.Inputs[input.Name])
		}
		for _, o := range c.Program.Outputs {
			out = append(out, c.Outputs[o.Name])
		}
		if err := c.Kernel.(*plan.Plan).Run(in, out, goroutines(threads)); err != nil {
			return err
		}
	}
	return nil
}

var planSubject = subject{executor: plans{},
	Accepts: map[randprog.Family]float64{randprog.Elementwise: 1, randprog.General: 1}}

// TestPlans also tests that outputs may have the memory of inputs.
func TestPlans(t *testing.T) { testExecutor(t, planSubject) }

// FuzzExecutors generates a program and its inputs from the bytes, and runs it on all executors for
// its family. The first byte determines the family, and whether the program is exact.
func FuzzExecutors(f *testing.F) {
	for i := range byte(6) {
		f.Add([]byte{i, 7 * i, 200, 100, 50, 25, 12, 6, 3, 250, 130, 90})
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 {
			return
		}
		o := randprog.UpdateOptions{Family: randprog.Families[int(data[0])%len(randprog.Families)],
			Exact: data[0]/16%2 == 0}
		c := randprog.NewUpdate(randprog.Bytes(data[1:]), o)
		for name, s := range map[string]subject{"updates": updateSubject, "slices": sliceSubject,
			"graph": graphSubject, "refresh": refreshSubject, "rows": rowsSubject,
			"kernels": kernelSubject, "plan": planSubject} {
			if _, ok := s.Accepts[o.Family]; !ok {
				continue
			}
			if _, err := s.check([]randprog.Case{c}, o.Exact); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
