// Package kernels computes the calls of models' programs on the processor, forward and backward,
// for package plan.
package kernels

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/cage-qat/cage/host/compute/attention"
	"github.com/cage-qat/cage/host/compute/cpu"
	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/compute/matmul"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/host/compute/plan"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
)

// A Table makes the kernels of calls, by their names.
type Table = map[string]func(*program.Call, plan.Options) (*plan.Kernel, error)

// For makes the kernels of sequences. Losses hold the logits of about so many tokens at a time (see
// [chunkOf]); 0 is replaced by [tokensFor].
func For(lossTokens int) Table {
	return Table{
		network.Linear:          linear,
		network.OfCodes:         ofCodes,
		network.RMSNorm:         norm,
		network.Rope:            rope,
		network.Attention:       attend,
		network.GatedUnit:       gate,
		network.CachedAttention: cachedAttention,
		network.CrossEntropy: func(c *program.Call, o plan.Options) (*plan.Kernel, error) {
			return loss(crossEntropy).kernel(c, o, c.Setting.(float64), lossTokens)
		},
		network.SoftmaxDistillation: func(c *program.Call, o plan.Options) (*plan.Kernel, error) {
			return distillation(c, o, c.Setting.(network.Distilling), lossTokens)
		},
		network.Draw: func(c *program.Call, o plan.Options) (*plan.Kernel, error) {
			return draw(c, o, c.Setting.(float64), lossTokens)
		},
		network.Scores: func(c *program.Call, o plan.Options) (*plan.Kernel, error) {
			return scores(c, o, c.Setting.(float64), lossTokens)
		},
	}
}

// Sums are the calls whose kernels can add to what they compute.
var Sums = []string{network.Linear, network.RMSNorm}

func always(int) bool { return true }
func never(int) bool  { return false }

// matrix is the layout of a matrix in a product that contracts one of its axes.
func matrix(rows, columns, contracted int) matmul.Layout {
	axes := []matmul.Axis{{Size: rows, Stride: columns}, {Size: columns, Stride: 1}}
	return matmul.Layout{Cross: axes[1-contracted : 2-contracted],
		Contracted: axes[contracted : contracted+1]}
}

// products are those of x·wᵀ, with x [n, in] and w [out, in], and of its adjoints.
type products struct{ value, dx, dw *matmul.Product }

func newProducts(o plan.Options, x, w program.Type) (p products, err error) {
	n, in, out := x.Shape[0], x.Shape[1], w.Shape[0]
	of := func(p **matmul.Product, left, right matmul.Layout) {
		if err == nil {
			*p, err = plan.NewProduct(o, left, right)
		}
	}
	of(&p.value, matrix(n, in, 1), matrix(out, in, 1))
	of(&p.dx, matrix(n, out, 1), matrix(out, in, 0))
	of(&p.dw, matrix(n, out, 0), matrix(n, in, 0))
	return p, err
}

func multiply(p *matmul.Product, to any, left, right any, sum []float32,
	parallel loops.Parallel) error {
	if to == nil {
		return nil
	}
	return p.Run(plan.Results(to, sum), plan.Elements(left), plan.Elements(right), matmul.Scales{},
		parallel)
}

// adjoints computes the adjoints of x and w, given that of x·wᵀ. sum, unless nil, is added to that
// of w.
func (p products) adjoints(dx, dw, dy, x, w any, sum []float32, parallel loops.Parallel) error {
	err := multiply(p.dx, dx, dy, w, nil, parallel)
	if err == nil {
		err = multiply(p.dw, dw, dy, x, sum, parallel)
	}
	return err
}

func linear(c *program.Call, o plan.Options) (*plan.Kernel, error) {
	p, err := newProducts(o, c.Meaning.Inputs[0].Type, c.Meaning.Inputs[1].Type)
	if err != nil {
		return nil, err
	}
	return &plan.Kernel{
		ReadsOperand: always, ReadsResult: never, AddsSum: true, GradientsInPlace: 1,
		BFloat16: plan.BFloat16{Operands: []bool{true, true}, Results: true, Adjoints: true,
			Gradients: true},
		Forward: func(m plan.Memory, parallel loops.Parallel) error {
			return multiply(p.value, m.Results[0], m.Operands[0], m.Operands[1], m.Sum, parallel)
		},
		Adjoint: func(m plan.Memory, parallel loops.Parallel) error {
			err := multiply(p.dw, m.Gradients[1], m.Adjoints[0], m.Operands[0], nil, parallel)
			if err == nil { // it may overwrite x
				err = multiply(p.dx, m.Gradients[0], m.Adjoints[0], m.Operands[1], m.Sum, parallel)
			}
			return err
		},
	}, nil
}

// ofCodes is linear whose forward product is that of integers, which is exact, times the scales of
// rows.
func ofCodes(c *program.Call, o plan.Options) (*plan.Kernel, error) {
	k, err := linear(c, o)
	if err != nil {
		return nil, err
	}
	x, w := c.Meaning.Inputs[0].Type.Shape, c.Meaning.Inputs[1].Type.Shape
	integers := o
	integers.Arithmetic = matmul.Int8
	p, err := plan.NewProduct(integers, matrix(x[0], x[1], 1), matrix(w[0], w[1], 1))
	if err != nil {
		return nil, err
	}
	k.AddsSum, k.Codes = false, []bool{false, false, true, false, true, false}
	k.ReadsOperand, k.Gradients = func(i int) bool { return i < 2 }, []bool{true, true}
	k.Scratch = []plan.Scratch{{Type: c.Meaning.Inputs[2].Type, Codes: true},
		{Type: c.Meaning.Inputs[4].Type, Codes: true}}
	k.Forward = func(m plan.Memory, parallel loops.Parallel) error {
		scales := matmul.Scales{Rows: m.Operands[3].([]float32), Columns: m.Operands[5].([]float32)}
		return p.Run(plan.Results(m.Results[0], nil), codesOf(m.Operands[2], m.Scratch[0]),
			codesOf(m.Operands[4], m.Scratch[1]), scales, parallel)
	}
	return k, nil
}

// codesOf returns codes, in scratch if they are floats.
func codesOf(memory, scratch any) matmul.Elements {
	if whole, ok := memory.([]float32); ok {
		loops.ToInt8(scratch.([]int8), whole)
		memory = scratch
	}
	return plan.Elements(memory)
}

func norm(c *program.Call, o plan.Options) (*plan.Kernel, error) {
	t, gain := c.Meaning.Inputs[0].Type, c.Meaning.Inputs[1].Type
	n, width := t.Shape[0], t.Shape[1]
	scales := program.FloatType(n, 1)
	var run [2]function // without and with a sum
	for i := range run {
		var err error
		run[i], err = compiled(c.Name, n, func(b *program.Builder) {
			x, g := b.Input("x", t), b.Input("gain", gain)
			var sum program.Value
			if i == 1 {
				sum = b.Input("sum", t)
			}
			scale := b.Const(1).Div(x.Square().MeanRow().Shift(c.Setting.(float64)).Sqrt())
			y := x.Mul(scale).Mul(g)
			if i == 1 {
				y = sum.Add(y)
			}
			b.Output("y", y)
			b.Output("scale", scale)
		})
		if err != nil {
			return nil, err
		}
	}
	return &plan.Kernel{
		Saved: []program.Type{scales}, ReadsOperand: always, ReadsResult: never,
		BFloat16: plan.BFloat16{Results: true}, AllGradients: true, AddsSum: true,
		Forward: func(m plan.Memory, parallel loops.Parallel) error {
			out := []any{m.Results[0], m.Saved[0]}
			if m.Sum != nil {
				return run[1](append(slices.Clone(m.Operands), m.Sum), out, parallel)
			}
			return run[0](m.Operands, out, parallel)
		},
		Adjoint: func(m plan.Memory, parallel loops.Parallel) error {
			dx, dGain := m.Gradients[0].([]float32), m.Gradients[1].([]float32)
			loops.Norm{Width: width, X: m.Operands[0].([]float32), Gain: m.Operands[1].([]float32),
				Scale: m.Saved[0].([]float32), Adjoint: m.Adjoints[0].([]float32),
				Sum: m.Sum}.Adjoints(dx, dGain, parallel)
			return nil
		},
	}, nil
}

// A function computes slices from slices.
type function func(in, out []any, parallel loops.Parallel) error

// compiled compiles the program over rows that write writes, as [byStorage] does.
func compiled(name string, rows int, write func(b *program.Builder)) (function, error) {
	b := program.NewBuilder(name)
	write(b)
	p, err := b.Build()
	if err != nil {
		return nil, err
	}
	return byStorage(p, rows)
}

// byStorage compiles a program over rows for each way in which its tensors may be stored. Outputs
// and inputs may be the same memory.
func byStorage(p *program.Program, rows int) (function, error) {
	var mu sync.Mutex
	made := map[string]*cpu.Pass{}
	_, err := cpu.Compile(p, rows, nil)
	return func(in, out []any, parallel loops.Parallel) error {
		key, stored := "", map[string]passes.Storage{}
		note := func(name string, memory any) {
			if _, short := memory.([]uint16); short {
				key, stored[name] = key+" "+name, passes.BFloat16
			}
		}
		for i, input := range p.Inputs {
			note(input.Name, in[i])
		}
		of := *p
		of.Outputs = slices.Clone(p.Outputs)
		for i := range of.Outputs {
			o, memory := &of.Outputs[i], reflect.ValueOf(out[i]).Pointer()
			for at, input := range p.Inputs {
				if reflect.ValueOf(in[at]).Pointer() == memory {
					o.Name = input.Name
					key += fmt.Sprint(" ", i, input.Name)
				}
			}
			note(o.Name, out[i])
		}
		mu.Lock()
		k, err := made[key], error(nil)
		if k == nil {
			k, err = cpu.Compile(&of, rows, stored)
			made[key] = k
		}
		mu.Unlock()
		if err != nil {
			return err
		}
		return k.Run(in, out, parallel)
	}, err
}

func rope(c *program.Call, _ plan.Options) (*plan.Kernel, error) {
	s := c.Setting.(network.Heads)
	h := attention.Heads{Batch: s.Batch, Context: s.Context, Size: s.Size, Pairs: s.Adjacent}
	for i, heads := range s.Parts {
		h.Parts = append(h.Parts, attention.Part{Heads: heads, Rotated: i < s.Rotated})
	}
	run := func(f func([]matmul.Elements, matmul.Elements, []float32, []float32,
		loops.Parallel) error, parts []any, joined any, m plan.Memory, parallel loops.Parallel) error {
		return f(lists.Map(parts, plan.Elements), plan.Elements(joined), m.Operands[1].([]float32),
			m.Operands[2].([]float32), parallel)
	}
	return &plan.Kernel{
		ReadsOperand: func(i int) bool { return i > 0 }, ReadsResult: never,
		BFloat16:  plan.BFloat16{Operands: []bool{true}, Results: true, Gradients: true},
		Gradients: []bool{true},
		Forward: func(m plan.Memory, parallel loops.Parallel) error {
			return run(h.Split, m.Results, m.Operands[0], m, parallel)
		},
		Adjoint: func(m plan.Memory, parallel loops.Parallel) error {
			return run(func(parts []matmul.Elements, joined matmul.Elements, cos, sin []float32,
				parallel loops.Parallel) error {
				return h.Join(joined, parts, cos, sin, parallel)
			}, m.Adjoints, m.Gradients[0], m, parallel)
		},
	}, nil
}

func attend(c *program.Call, o plan.Options) (*plan.Kernel, error) {
	s, in := c.Setting.(network.Attending), c.Meaning.Inputs
	tier, err := matmul.Best()
	if err != nil {
		return nil, err
	}
	q := in[0].Type.Shape
	sizes := attention.Sizes{Batch: q[0], Context: q[1], Heads: q[2], KeyHeads: in[1].Type.Shape[2],
		Size: q[3], Window: s.Window, Scale: s.Scale, Cap: s.Cap}
	p, err := attention.New(tier, o.Arithmetic, sizes)
	if err != nil {
		return nil, err
	}
	inputs := func(m plan.Memory) attention.Inputs {
		i := attention.Inputs{Query: plan.Elements(m.Operands[0]), Key: plan.Elements(m.Operands[1]),
			Value: plan.Elements(m.Operands[2])}
		if len(m.Operands) > 3 {
			i.Segments = m.Operands[3].([]int32)
		}
		return i
	}
	return &plan.Kernel{
		Saved:        []program.Type{program.FloatType(p.Logs())},
		ReadsOperand: always, ReadsResult: always,
		BFloat16:     plan.BFloat16{Operands: []bool{true, true, true}, Results: true, Adjoints: true},
		AllGradients: true,
		Forward: func(m plan.Memory, parallel loops.Parallel) error {
			return p.Forward(plan.Elements(m.Results[0]), m.Saved[0].([]float32), inputs(m), parallel)
		},
		Adjoint: func(m plan.Memory, parallel loops.Parallel) error {
			d := lists.Map(m.Gradients[:3], func(x any) []float32 { return x.([]float32) })
			return p.Backward(attention.Adjoints{Query: d[0], Key: d[1], Value: d[2]}, inputs(m),
				plan.Elements(m.Results[0]), m.Saved[0].([]float32), plan.Elements(m.Adjoints[0]), parallel)
		},
	}, nil
}

// gate computes a gated unit and its adjoint in one pass each. For SwiGLU of numbers in bfloat16
// some processors have faster loops.
func gate(c *program.Call, _ plan.Options) (*plan.Kernel, error) {
	shape := c.Meaning.Inputs[0].Type.Shape
	value, back := GatePrograms(c.Setting.(string), "y", shape)
	forward, err := byStorage(value, shape[0])
	if err != nil {
		return nil, err
	}
	backward, err := byStorage(back, shape[0])
	if err != nil {
		return nil, err
	}
	loop := c.Setting == "silu" && loops.HasGates()
	return &plan.Kernel{
		ReadsOperand: always, ReadsResult: never, AllGradients: true, GradientsInPlace: 2,
		BFloat16: plan.BFloat16{Operands: []bool{true, true}, Results: true, Adjoints: true,
			Gradients: true},
		Forward: func(m plan.Memory, parallel loops.Parallel) error {
			if s, ok := short(m.Operands, m.Results); ok && loop {
				loops.Gates{A: s[0], B: s[1]}.Values(s[2], parallel)
				return nil
			}
			return forward(m.Operands, m.Results, parallel)
		},
		Adjoint: func(m plan.Memory, parallel loops.Parallel) error {
			if s, ok := short(m.Operands, m.Gradients, m.Adjoints); ok && loop {
				loops.Gates{A: s[0], B: s[1]}.Adjoints(s[2], s[3], s[4], parallel)
				return nil
			}
			return backward(slices.Concat(m.Operands, m.Adjoints), m.Gradients, parallel)
		},
	}, nil
}

// GatePrograms returns the programs of f(a)·b, with a name for its output, and of its adjoints, for
// an activation "silu" or "gelu". Derivatives are written in forms in which nothing
// overflows, which those that follow from the definitions are not.
func GatePrograms(activation, output string, shape []int) (forward, backward *program.Program) {
	f := map[string]func(x program.Value) (value, slope program.Value){"silu": silu, "gelu": gelu}
	t := program.FloatType(shape...)
	b := program.NewBuilder(activation)
	x, y := b.Input("a", t), b.Input("b", t)
	value, _ := f[activation](x)
	b.Output(output, value.Mul(y))
	forward, err := b.Build()
	if err != nil {
		panic(err)
	}
	b = program.NewBuilder(activation + ".backward")
	x, y, dy := b.Input("a", t), b.Input("b", t), b.Input("d", t)
	value, slope := f[activation](x)
	b.Output("da", dy.Mul(y).Mul(slope))
	b.Output("db", dy.Mul(value))
	if backward, err = b.Build(); err != nil {
		panic(err)
	}
	return forward, backward
}

// silu returns x·σ(x) and its derivative.
func silu(x program.Value) (value, slope program.Value) {
	one := x.Builder().Const(1)
	sigma := one.Div(x.Neg().Exp().Add(one))
	return x.Mul(sigma), sigma.Mul(x.Mul(x.Builder().Const(1).Sub(sigma)).Shift(1))
}

// gelu returns x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³))) and its derivative.
func gelu(x program.Value) (value, slope program.Value) {
	const c, cubic = 0.7978845608028654, 0.044715 // c = √(2/π)
	tanh := x.Square().Scale(cubic).Shift(1).Mul(x).Scale(c).Tanh()
	inner := x.Square().Scale(3 * cubic).Shift(1).Scale(c) // the derivative of tanh's argument
	slope = tanh.Shift(1).Add(x.Mul(x.Builder().Const(1).Sub(tanh.Square())).Mul(inner)).Scale(0.5)
	return x.Scale(0.5).Mul(tanh.Shift(1)), slope
}

// short returns slices if all are in bfloat16.
func short(lists ...[]any) (all [][]uint16, ok bool) {
	for _, memory := range slices.Concat(lists...) {
		m, ok := memory.([]uint16)
		if !ok {
			return nil, false
		}
		all = append(all, m)
	}
	return all, true
}

// A loss computes the results in m from rows of logits and, if d is not nil, stores the
// gradient with respect to the logits in d: []uint16 or []float32, possibly that of l.
type loss func(l loops.Logits, m plan.Memory, d any, parallel loops.Parallel) error

// crossEntropy computes losses, given the targets.
func crossEntropy(l loops.Logits, m plan.Memory, d any, parallel loops.Parallel) error {
	losses := m.Results[0].([]float32)
	if d != nil {
		whole, short := gradientsOf(d)
		return l.Losses(losses, whole, short, m.Adjoints[0].([]float32), parallel)
	}
	chosen := make([]float32, len(losses))
	err := l.Sums(losses, chosen, parallel)
	loops.Binary(loops.Sub, losses, losses, chosen)
	return err
}

// distillation computes losses, divergences and cross-entropies, given the targets and the
// teacher's hidden states and head.
func distillation(c *program.Call, o plan.Options, by network.Distilling, tokens int) (
	*plan.Kernel, error) {
	logitsOf, logits, err := headOf(c, o, 3, by.TeacherCap, tokens)
	if err != nil {
		return nil, err
	}
	compute := loss(func(l loops.Logits, m plan.Memory, d any, parallel loops.Parallel) error {
		teacher := m.Scratch[len(m.Scratch)-1].([]float32)
		if err := logitsOf(teacher, m.Operands[3], m.Operands[4], parallel); err != nil {
			return err
		}
		of := loops.Distillation{Teacher: teacher, Beta: by.Beta,
			Temperature: by.Temperature, Weight: by.Weight, Scale: by.Scale()}
		losses, divergences, entropies := m.Results[0].([]float32), m.Results[1].([]float32),
			m.Results[2].([]float32)
		factors := make([]float32, len(losses))
		switch {
		case d == nil:
			d = l.Logits
		case m.Adjoints[1] != nil || m.Adjoints[2] != nil:
			return errors.New("divergences and cross-entropies have no gradients")
		default:
			factors = m.Adjoints[0].([]float32)
		}
		whole, short := gradientsOf(d)
		err := l.Distilled(of, divergences, entropies, whole, short, factors, parallel)
		loops.LinAdd(losses, divergences, float32(by.Weight), entropies, float32(1-by.Weight))
		return err
	})
	k, err := compute.kernel(c, o, by.Cap, tokens)
	if err != nil {
		return nil, err
	}
	k.BFloat16.Operands = append(k.BFloat16.Operands, false, true, true)
	k.Scratch = append(k.Scratch, plan.Scratch{Type: logits})
	return k, nil
}

// A head computes the logits of a chunk of rows, from hidden states and the weight.
type head func(logits []float32, x, w any, parallel loops.Parallel) error

// headOf returns the head whose hidden states and weight are operands of a call, from the first one
// on, and the type of the logits.
func headOf(c *program.Call, o plan.Options, first int, limit float64, tokens int) (
	f head, logits program.Type, err error) {
	x, w := c.Meaning.Inputs[first].Type.Shape, c.Meaning.Inputs[first+1].Type.Shape
	size := chunkOf(x[0], cmp.Or(tokens, tokensFor(w[0])))
	p, err := plan.NewProduct(o, matrix(size, x[1], 1), matrix(w[0], w[1], 1))
	if err != nil {
		return nil, logits, err
	}
	capped, err := capOf(limit, size, w[0])
	return func(logits []float32, x, w any, parallel loops.Parallel) error {
		err := multiply(p, logits, x, w, nil, parallel)
		if err == nil {
			err = capped([]any{logits}, []any{logits}, parallel)
		}
		return err
	}, program.FloatType(size, w[0]), err
}

// each computes the logits of chunks of rows, one after the other, in the first scratch. For each
// chunk it calls do with the memory of its rows and the index of the first of them.
func (f head) each(m plan.Memory, n, size int, parallel loops.Parallel,
	do func(part plan.Memory, logits []float32, first int) error) error {
	logits := m.Scratch[0].([]float32)
	for first := 0; first < n; first += size {
		part := m.Rows(n, first, size)
		err := f(logits, part.Operands[0], m.Operands[1], parallel)
		if err == nil {
			err = do(part, logits, first)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// draw samples targets for chunks of rows, one after the other.
func draw(c *program.Call, o plan.Options, limit float64, tokens int) (*plan.Kernel, error) {
	logitsOf, t, err := headOf(c, o, 0, limit, tokens)
	if err != nil {
		return nil, err
	}
	n, size, columns := c.Meaning.Inputs[0].Type.Shape[0], t.Shape[0], t.Shape[1]
	randomBits := program.Type{DType: program.Uint, Shape: t.Shape}
	drawn, err := compiled(c.Name, size, func(b *program.Builder) {
		b.Output("targets", network.Drawn(b.Input("logits", t), b.Input("bits", randomBits)))
	})
	if err != nil {
		return nil, err
	}
	return &plan.Kernel{BFloat16: plan.BFloat16{Operands: []bool{true, true}},
		Gradients: []bool{false},
		Scratch:   []plan.Scratch{{Type: t}, {Type: randomBits}},
		Forward: func(m plan.Memory, parallel loops.Parallel) error {
			bits, key := m.Scratch[1].([]uint32), [2]uint32(m.Operands[2].([]uint32))
			return logitsOf.each(m, n, size, parallel, func(part plan.Memory, logits []float32,
				first int) error {
				parallel(size, func(i int) {
					loops.Bits(bits[i*columns:][:columns], key, uint32((first+i)*columns))
				})
				return drawn([]any{logits, bits}, part.Results, parallel)
			})
		}}, nil
}

// scores computes the log-probabilities of targets, and the likeliest tokens, for chunks of rows,
// one after the other.
func scores(c *program.Call, o plan.Options, limit float64, tokens int) (*plan.Kernel, error) {
	logitsOf, t, err := headOf(c, o, 0, limit, tokens)
	if err != nil {
		return nil, err
	}
	n, size := c.Meaning.Inputs[0].Type.Shape[0], t.Shape[0]
	likeliest, err := compiled(c.Name, size, func(b *program.Builder) {
		b.Output("column", b.Input("logits", t).ArgMaxRow())
	})
	if err != nil {
		return nil, err
	}
	return &plan.Kernel{BFloat16: plan.BFloat16{Operands: []bool{true, true}},
		Gradients: []bool{false},
		Scratch:   []plan.Scratch{{Type: t}},
		Forward: func(m plan.Memory, parallel loops.Parallel) error {
			totals := make([]float32, size)
			return logitsOf.each(m, n, size, parallel, func(part plan.Memory, logits []float32,
				_ int) error {
				rows := loops.Logits{Columns: t.Shape[1], Logits: logits,
					Targets: part.Operands[2].([]int32)}
				chosen := part.Results[0].([]float32)
				if err := rows.Sums(totals, chosen, parallel); err != nil {
					return err
				}
				loops.Binary(loops.Sub, chosen, chosen, totals)
				return likeliest([]any{logits}, part.Results[1:], parallel)
			})
		}}, nil
}

func gradientsOf(d any) (whole []float32, short []uint16) {
	whole, _ = d.([]float32)
	short, _ = d.([]uint16)
	return whole, short
}

// kernel computes a head and a loss for chunks of rows, one after the other, and keeps no logits
// (as in Hsu et al., 2024, "Liger Kernel"). limit is the cap of the logits.
func (f loss) kernel(c *program.Call, o plan.Options, limit float64, tokens int) (
	*plan.Kernel, error) {
	x, w := c.Meaning.Inputs[0].Type, c.Meaning.Inputs[1].Type
	logitsOf, t, err := headOf(c, o, 0, limit, tokens)
	if err != nil {
		return nil, err
	}
	n, size, vocabulary := x.Shape[0], t.Shape[0], t.Shape[1]
	p, err := newProducts(o, program.FloatType(size, x.Shape[1]), w)
	if err != nil {
		return nil, err
	}
	capAdjoint, err := capAdjointOf(limit, size, vocabulary)
	if err != nil {
		return nil, err
	}
	scratch := []plan.Scratch{{Type: t}}
	if limit != 0 || o.Arithmetic == matmul.BFloat16 { // else gradients replace the logits
		scratch = append(scratch, plan.Scratch{Type: t, Rounded: limit == 0})
	}
	gradient := len(scratch) - 1
	chunks := func(m plan.Memory, parallel loops.Parallel) error {
		var d any
		if m.Gradients != nil {
			d = m.Scratch[gradient]
		}
		return logitsOf.each(m, n, size, parallel, func(part plan.Memory, logits []float32,
			first int) error {
			if len(part.Operands) > 4 {
				part.Operands[4] = m.Operands[4] // the head of a teacher
			}
			rows := loops.Logits{Columns: vocabulary, Logits: logits,
				Targets: part.Operands[2].([]int32)}
			err := f(rows, part, d, parallel)
			if err == nil && d != nil {
				err = capAdjoint([]any{logits, d}, []any{d}, parallel)
			}
			if err != nil || d == nil {
				return err
			}
			var sum []float32 // of the weight's gradient, over the chunks before
			if first > 0 {
				sum, _ = m.Gradients[1].([]float32)
			}
			return p.adjoints(part.Gradients[0], m.Gradients[1], d, part.Operands[0], m.Operands[1], sum,
				parallel)
		})
	}
	return &plan.Kernel{BFloat16: plan.BFloat16{Operands: []bool{true, true}},
		Gradients: []bool{true, true},
		Scratch:   scratch,
		Forward:   chunks, Both: chunks}, nil
}

// tokensFor returns the number of tokens whose logits are computed at once: 512, more where these
// take less than 16 MiB, and down to 128 where they take more than 128 MiB.
func tokensFor(vocabulary int) int {
	return max(128, min(512, 1<<25/vocabulary), 1<<22/vocabulary)
}

// chunkOf returns the largest divisor of rows that is at most most and more than an eighth of it.
// If there is none, it multiplies most by 8 and tries again, up to all rows: products of a few rows
// are slow.
func chunkOf(rows, most int) int {
	for ; most < rows; most *= 8 {
		for size := most; size > most/8; size-- {
			if rows%size == 0 {
				return size
			}
		}
	}
	return rows
}

// capOf returns the function that replaces logits x by c·tanh(x/c); it changes nothing if c is 0.
func capOf(c float64, rows, columns int) (function, error) {
	if c == 0 {
		return unchanged, nil
	}
	return compiled("cap", rows, func(b *program.Builder) {
		x := b.Input("x", program.FloatType(rows, columns))
		b.Output("x", x.Scale(1/c).Tanh().Scale(c))
	})
}

// capAdjointOf returns the function that replaces the adjoint of y, a result of [capOf], by the
// adjoint of x. Its inputs are y and the adjoint of y.
func capAdjointOf(c float64, rows, columns int) (function, error) {
	if c == 0 {
		return unchanged, nil
	}
	return compiled("cap.vjp", rows, func(b *program.Builder) {
		t := program.FloatType(rows, columns)
		y, d := b.Input("y", t), b.Input("d", t)
		b.Output("d", d.Mul(b.Const(1).Sub(y.Scale(1/c).Square())))
	})
}

func unchanged(_, _ []any, _ loops.Parallel) error { return nil }
