package lower

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/pass/byrow"
	"github.com/cage-qat/cage/host/compute/pass/factor"
	"github.com/cage-qat/cage/host/compute/rows"
	"github.com/cage-qat/cage/host/compute/triton"
	"github.com/cage-qat/cage/sdk/answer"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/simplify"
)

// Constants of package triton, for callers of [Kernel].
const (
	LargestLoneRow = triton.LargestLoneRow // largest number of elements in a row for [LoneKernel]
	BFloat16       = triton.BFloat16       // a storage for [InMemory]
)

// InMemory says in which type a kernel's float inputs and outputs are stored, by name. The default is float32.
type InMemory map[string]triton.Storage

// Kernel is [Lower] by a kernel: the part of the program that computes rows from rows becomes the kernel, the rest becomes
// nodes. ok is false if the graph's device has no kernels, or if the program does not fit into one.
//
// Inputs and outputs that are stored in bfloat16 are float32 nodes nevertheless, rounded to bfloat16: the device's compiler
// fuses the conversions with the operations that write and read them. Outputs stored in 8 bits are int8 nodes.
func Kernel(g *graph.Graph, p *program.Program, rows int, inputs []*graph.Node, at InMemory) (outputs map[string]*graph.Node, ok bool) {
	if !HasKernels(g) {
		return nil, false
	}
	return kernelOf(g, p, rows, triton.LargestRow, inputs, at)
}

// LoneKernel is [Kernel] for a program that reads a single tensor with elements in every row. Its rows may have up to
// [LargestLoneRow] elements.
func LoneKernel(g *graph.Graph, p *program.Program, rows int, inputs []*graph.Node, at InMemory) (outputs map[string]*graph.Node, ok bool) {
	if !HasKernels(g) {
		return nil, false
	}
	return kernelOf(g, p, rows, triton.LargestLoneRow, inputs, at)
}

// lowerRows computes a program by [Kernel], or by [Lower] if there is no kernel for it, on the CPU in float32 in pieces.
func lowerRows(g *graph.Graph, p *program.Program, rows int, inputs []*graph.Node, at InMemory) map[string]*graph.Node {
	if out, ok := Kernel(g, p, rows, inputs, at); ok {
		return out
	}
	var out map[string]*graph.Node
	if hasPieces(engine.DeviceOf(g)) && isSingle(inputs) {
		out = inPieces(g, p, rows, inputs)
	} else {
		out = Lower(g, p, inputs)
	}
	for name, node := range out {
		if at[name] == triton.Int8 {
			out[name] = at.store(name, node)
		}
	}
	return out
}

// kernelOf is [Kernel] for rows of at most the given number of elements. It does not ask whether the device has kernels,
// because the trial that answers this uses it.
func kernelOf(g *graph.Graph, p *program.Program, rows, largest int, inputs []*graph.Node, at InMemory) (outputs map[string]*graph.Node, ok bool) {
	p, err := simplify.Program(p)
	if err != nil {
		panic(err)
	}
	var d byrow.Division
	var call kernelCall
	if hasRows(engine.DeviceOf(g)) {
		d, call, ok = rowsKernel(g, p, rows, inputs, at)
	} else {
		d, call, ok = tritonKernel(g, p, rows, largest, at)
	}
	if !ok {
		return nil, false
	}
	known, inputs := map[string]*graph.Node{}, slices.Clone(inputs)
	for i, in := range p.Inputs {
		known[in.Name] = at.store(in.Name, inputs[i])
		inputs[i] = at.read(in.Name, known[in.Name])
	}
	out := map[string]*graph.Node{}
	if d.Whole != nil {
		out = Lower(g, d.Whole, inputs)
		for name, node := range out {
			if strings.HasPrefix(name, byrow.NumberPrefix) { // outputs of the program may have names of inputs
				known[name] = node
			}
		}
	}
	in := make([]*graph.Node, len(d.Rows.Inputs))
	for i, input := range d.Rows.Inputs {
		in[i] = known[input.Name]
	}
	results := call(in)
	for i, o := range d.Rows.Outputs {
		out[o.Name] = at.read(o.Name, results[i])
	}
	return out, true
}

// A kernelCall calls the kernel of a program: it takes the inputs and returns the outputs as they are stored.
type kernelCall func(inputs []*graph.Node) []*graph.Node

// tritonKernel divides a program and makes a kernel for GPUs of its rows. ok is false if there is none.
func tritonKernel(g *graph.Graph, p *program.Program, rows, largest int, at InMemory) (d byrow.Division, call kernelCall, ok bool) {
	d, err := triton.Divide(p, rows)
	if err != nil {
		panic(err)
	}
	if d.Rows == nil {
		return d, nil, false
	}
	k, err := triton.New(d.Rows, rows, largest, at)
	if refusal := (*triton.Refusal)(nil); errors.As(err, &refusal) {
		warnOnce(g, refusal.Reason, refusal, "a program is computed without a kernel, which takes more time and memory")
		return d, nil, false
	}
	if err != nil {
		panic(err)
	}
	return d, func(inputs []*graph.Node) []*graph.Node {
		return engine.Kernel(*k).Call(inputs, func(in []*graph.Node) []*graph.Node {
			for i := range in {
				in[i] = at.read(d.Rows.Inputs[i].Name, in[i])
			}
			outputs := Outputs(in[0].Graph(), d.Rows, in)
			for i, o := range d.Rows.Outputs {
				outputs[i] = at.store(o.Name, outputs[i])
			}
			return outputs
		})
	}, true
}

// rowsKernel is the same on the CPU: rows are computed in one pass through the caches. What is float32 and is to be stored in
// bfloat16 is rounded when it is read, which saves a pass over memory. inputs are those of the program, as they are.
func rowsKernel(g *graph.Graph, p *program.Program, count int, inputs []*graph.Node, at InMemory) (d byrow.Division, call kernelCall, ok bool) {
	d, err := rows.Divide(p, count)
	if err != nil {
		panic(err)
	}
	if d.Rows == nil {
		return d, nil, false
	}
	asTheyAre, direct := maps.Clone(at), map[string]*graph.Node{}
	for i, in := range p.Inputs {
		if at[in.Name] == triton.BFloat16 && inputs[i].DType() == dtypes.Float32 {
			direct[in.Name] = engine.ShortOperand(inputs[i])
			if direct[in.Name].DType() == dtypes.Float32 {
				asTheyAre[in.Name] = byrow.Rounded
			}
		}
	}
	run, err := rowsCall(d.Rows, count, asTheyAre)
	if refusal := (*rows.Refusal)(nil); errors.As(err, &refusal) {
		warnOnce(g, refusal.Reason, refusal, "a program is computed operation by operation, which takes more time and memory")
		return d, nil, false
	}
	if err != nil {
		panic(err)
	}
	return d, func(inputs []*graph.Node) []*graph.Node {
		for i, in := range d.Rows.Inputs {
			if x := direct[in.Name]; x != nil {
				inputs[i] = x
			}
		}
		return run(inputs)
	}, true
}

// rowsCall is the call of package rows for a program.
func rowsCall(p *program.Program, count int, at InMemory) (kernelCall, error) {
	k, err := rows.Compile(p, count, at)
	if err != nil {
		return nil, err
	}
	native := engine.Native{Name: p.Name, Run: func(in, out []engine.Tensor, parallel engine.Parallel) error {
		return k.Run(flats(in), flats(out), parallel)
	}}
	for _, o := range p.Outputs {
		t := p.TypeOf(o.Value)
		native.Outputs = append(native.Outputs, shapes.Make(at.stored(o.Name, t.DType), t.Shape...))
	}
	return func(inputs []*graph.Node) []*graph.Node { return native.Call(inputs...) }, nil
}

// flats are the elements of tensors.
func flats(tensors []engine.Tensor) []any {
	list := make([]any, len(tensors))
	for i, t := range tensors {
		list[i] = t.Flat
	}
	return list
}

// stored is the type in which an input or output is stored.
func (m InMemory) stored(name string, d program.DType) dtypes.DType {
	switch d {
	case program.Bool:
		return dtypes.Bool
	case program.Int:
		return dtypes.Int32
	case program.Uint:
		return dtypes.Uint32
	}
	return m.dtype(name)
}

// store converts a float32 node to the type in which it is stored.
func (m InMemory) store(name string, x *graph.Node) *graph.Node {
	if m[name] == "" { // bools and integers as well
		return x
	}
	return graph.ConvertDType(x, m.dtype(name))
}

// dtype is the type in which the named input or output is stored.
func (m InMemory) dtype(name string) dtypes.DType { return dtypeOf(m[name]) }

// dtypeOf is the type of a storage, float32 for none.
func dtypeOf(s triton.Storage) dtypes.DType {
	switch s {
	case triton.BFloat16:
		return dtypes.BFloat16
	case triton.Int8:
		return dtypes.Int8
	}
	return dtypes.Float32
}

// read converts a stored node to float32. Codes stay int8.
func (m InMemory) read(name string, x *graph.Node) *graph.Node {
	if m[name] == triton.BFloat16 {
		return graph.ConvertDType(x, dtypes.Float32)
	}
	return x
}

// refusedKernel is the key of a reason for which a device has warned.
type refusedKernel string

// warnOnce warns that a kernel was refused, and says what is done in its place. It warns once for each reason, because the
// same programs come again in every layer.
func warnOnce(g *graph.Graph, reason string, refusal error, inPlace string) {
	engine.DeviceOf(g).Once(refusedKernel(reason), func() any {
		engine.DeviceOf(g).Warn(inPlace, "reason", refusal)
		return nil
	})
}

// HasKernels reports whether the graph's device computes programs over rows by kernels.
func HasKernels(g *graph.Graph) bool { return hasKernels(engine.DeviceOf(g)) }

// hasKernels reports whether a device, which may be nil, computes programs over rows by kernels.
func hasKernels(d *engine.Device) bool { return hasRows(d) || hasTriton(d) }

// hasRows reports whether a device computes programs over rows by package rows.
func hasRows(d *engine.Device) bool {
	return d != nil && d.Precision() == device.BFloat16 && (d.Kernels() == device.AutoKernels || d.Kernels() == device.FusedKernels) && d.HasNatives()
}

// hasTriton reports whether a device computes programs over rows by kernels for GPUs.
func hasTriton(d *engine.Device) bool {
	switch {
	case d == nil:
		return false
	case d.Kernels() == device.BodyKernels:
		return true
	case d.Kind() == device.CPU || d.Precision() != device.BFloat16 || d.Kernels() == device.GraphKernels:
		return false
	case d.Kernels() == device.FusedKernels:
		return true
	}
	err := d.Try(kernelTrial{}, "programs of quantizers are computed without kernels, which takes more time and memory", kernelTrial{}.run)
	return err == nil
}

// A kernelTrial tests, once for each device, whether the device computes kernels correctly.
type kernelTrial struct{}

const (
	trialRows  = 64
	trialWidth = 384 // no power of two, so that rows are padded
	trialBlock = 128
)

// program is a quantizer to integers in a rotated domain. It also has sums over rows, maxima over groups and a mask,
// as kernels of quantizers have.
func (kernelTrial) program() (*program.Program, error) {
	const group = 32
	groups := trialWidth / group
	b := program.NewBuilder("trial/forward")
	z := b.Input(answer.InputX, program.FloatType(trialRows, trialWidth)).Hadamard(trialBlock)
	r := z.Div(z.Mul(z).MeanRow().Sqrt()).Reshape(trialRows, groups, group)
	highest := r.Abs().MaxRow()
	code := r.Mul(b.Const(4)).Clamp(b.Const(-8), b.Const(7)).Round()
	value := r.Abs().Le(b.Const(2)).Select(code.Mul(highest), b.Const(0))
	b.Output(answer.OutputValue, value.Reshape(trialRows, trialWidth))
	return b.Build()
}

// run compares the kernel with the graph on random numbers. The error says that the device
// has no kernels, or how much the two differ.
func (k kernelTrial) run(d *engine.Device) error {
	p, err := k.program()
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(1, 2))
	x := make([]float32, trialRows*trialWidth)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	at := InMemory{answer.OutputValue: triton.BFloat16} // x is float32, so that a rotation splits its numbers in two
	fused, err := k.values(d, x, func(g *graph.Graph, x *graph.Node) *graph.Node {
		out, ok := kernelOf(g, p, trialRows, triton.LargestRow, []*graph.Node{x}, at)
		if !ok {
			panic(errors.New("the trial fits no kernel"))
		}
		return out[answer.OutputValue]
	})
	if err != nil {
		return fmt.Errorf("the device has no kernels: %w", err)
	}
	plain, err := k.values(d, x, func(g *graph.Graph, x *graph.Node) *graph.Node {
		return Lower(g, p, []*graph.Node{x})[answer.OutputValue]
	})
	if err != nil {
		return err
	}
	return k.compare(fused, plain)
}

// compare fails if the values of a kernel differ too much from those of the graph. A few may differ by a whole code, because a number
// half way between two codes can be rounded to either; the others differ by the rounding to bfloat16.
func (kernelTrial) compare(fused, plain []float32) error {
	const most, tolerance = 0.01, 1.0 / 64
	differing := 0
	if !slices.ContainsFunc(plain, func(x float32) bool { return x != 0 }) {
		return errors.New("the device computes nothing but zeros")
	}
	for i, want := range plain {
		if !(math.Abs(float64(fused[i]-want)) <= tolerance*math.Abs(float64(want))) {
			differing++
		}
	}
	if share := float64(differing) / float64(len(plain)); share > most {
		return fmt.Errorf("%.2g of the values of a kernel differ from those of the graph: want at most %g", share, most)
	}
	return nil
}

// values executes a graph of one input and one output.
func (kernelTrial) values(d *engine.Device, x []float32, build func(g *graph.Graph, x *graph.Node) *graph.Node) ([]float32, error) {
	in := engine.Input{Spec: engine.Spec{Name: "x", Shape: shapes.Make(dtypes.Float32, trialRows, trialWidth)}, Data: x}
	out, err := d.Evaluate("trial of kernels", []engine.Input{in}, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		return []*graph.Node{build(g, in[0])}
	})
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// multipliesBlocks reports whether a device multiplies codes in [blocks], by a kernel.
func multipliesBlocks(d *engine.Device) bool {
	return d.Try(blockTrial{}, "quantized matrices are multiplied by their values and not by their codes, which takes more time", func(d *engine.Device) error {
		switch {
		case !hasTriton(d):
			return errors.New("the device has no kernels")
		case d.Kernels() == device.AutoKernels:
			return blockTrial{}.run(d)
		}
		return nil
	}) == nil
}

// A blockTrial tests, once for each device, whether the device multiplies blocks correctly. It uses the largest tiles of such
// kernels, and so tests whether they fit the device's memory, too.
type blockTrial struct{}

// Sizes of the two matrices. The axis over which they are summed is three tiles long.
const trialTokens, trialOutputs, trialInner = 128, 256, 768

func (t blockTrial) run(d *engine.Device) error {
	for _, size := range []int{factor.BlockE8M0, factor.BlockE4M3} {
		if err := t.multiply(d, size); err != nil {
			return fmt.Errorf("in blocks of %d: %w", size, err)
		}
	}
	return nil
}

// multiply compares the kernel with the graph on random codes and on scales about 1.
func (t blockTrial) multiply(d *engine.Device, size int) error {
	rng := rand.New(rand.NewPCG(3, 4))
	bytes := func(rows, length, least, most int) engine.Input {
		data := make([]float32, rows*length)
		for i := range data {
			data[i] = float32(int8(least + rng.IntN(most+1-least)))
		}
		return engine.Input{Spec: engine.Spec{Name: fmt.Sprintf("bytes_%d_%d", rows, length), Shape: shapes.Make(dtypes.Float32, rows, length)}, Data: data}
	}
	least, most := 124, 130 // 2⁻³ to 2³
	if size == factor.BlockE4M3 {
		least, most = 40, 72 // ¼ to 4
	}
	matrix := func(rows int) []engine.Input {
		return []engine.Input{bytes(rows, trialInner/2, -128, 127), bytes(rows, trialInner/size, least, most), bytes(rows, 1, 1, 3)}
	}
	inputs := append(matrix(trialTokens), matrix(trialOutputs)...)
	got, err := d.Evaluate("trial of products of blocks", inputs, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		codes := func(in []*graph.Node) Codes {
			return Codes{Parts: []*graph.Node{graph.ConvertDType(in[0], dtypes.Int8), graph.ConvertDType(in[1], dtypes.Int8), in[2]}}
		}
		x, w := codes(in[:3]), codes(in[3:])
		product, ok := blockProduct(x, w, false)
		if !ok {
			panic(errors.New("the trial has no kernel"))
		}
		return []*graph.Node{product, x.dequantizedProduct(w)}
	})
	if err != nil {
		return fmt.Errorf("the device does not multiply four-bit floats: %w", err)
	}
	return t.compare(got[0], got[1])
}

// compare fails if the product of a kernel differs too much from that of the values. The values are exact in bfloat16, so that
// only sums are rounded.
func (blockTrial) compare(kernel, values []float32) error {
	const tolerance = 1e-4
	difference, size := 0.0, 0.0
	for i, want := range values {
		difference += math.Pow(float64(kernel[i])-float64(want), 2)
		size += math.Pow(float64(want), 2)
	}
	if size == 0 {
		return errors.New("the device computes nothing but zeros")
	}
	if e := math.Sqrt(difference / size); !(e <= tolerance) {
		return fmt.Errorf("a product of four-bit floats has a relative error of %.2g beside that of their values: want at most %g", e, tolerance)
	}
	return nil
}
