package kernels

import (
	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/compute/matmul"
	"github.com/cage-qat/cage/host/compute/plan"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/internal/linalg"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
)

// ForFew makes the kernels for a token of each of a few sequences. This needs little arithmetic,
// but reads all weights: all cores together read each once, in the order of memory. Weights may be
// in bfloat16, which takes half the time, if [linalg.HasBFloat16].
func ForFew() Table {
	list := For(0)
	list[network.Linear] = fewRows
	list[network.OfCodes] = func(c *program.Call, o plan.Options) (*plan.Kernel, error) {
		o.Arithmetic = matmul.Float32 // of the values, whose products are as exact
		k, err := fewRows(c, o)
		if err == nil {
			k.Codes = []bool{false, false, true, false, true, false}
			k.BFloat16 = plan.BFloat16{Results: true}
		}
		return k, err
	}
	return list
}

// fewRows computes x·wᵀ for an x of few rows.
func fewRows(c *program.Call, o plan.Options) (*plan.Kernel, error) {
	x, w := c.Meaning.Inputs[0].Type, c.Meaning.Inputs[1].Type
	rows, in, out := x.Shape[0], x.Shape[1], w.Shape[0]
	y := program.FloatType(rows, out)
	each := max(1, 1<<14/in/8) * 8 // rows of w: read at full speed, and all cores end together
	return &plan.Kernel{AddsSum: true, Scratch: []plan.Scratch{{Type: x}, {Type: y}},
		BFloat16: plan.BFloat16{Operands: []bool{true}, Always: []bool{false, true}, Results: true},
		Forward: func(m plan.Memory, parallel loops.Parallel) error {
			x := rounded(m.Operands[0], m.Scratch[0].([]float32), o)
			y, whole := m.Results[0].([]float32)
			if !whole {
				y = m.Scratch[1].([]float32)
			}
			loops.InParts(out, each, parallel, func(from, to int) {
				left := linalg.RowMajor(x, rows, in)
				part := linalg.RowMajor(y[from:], rows, to-from)
				part.RowStride = out
				switch w := m.Operands[1].(type) {
				case []float32:
					linalg.FewTimes(part, left, linalg.RowMajor(w, out, in).Part(from, to))
				case []uint16:
					right := linalg.BFloat16{Rows: out, Cols: in, Data: w}
					linalg.FewTimesBFloat16(part, left, right.Part(from, to))
				}
			})
			if m.Sum != nil {
				loops.Binary(loops.Add, y, y, m.Sum)
			}
			if !whole {
				loops.ToBFloat16(m.Results[0].([]uint16), y)
			}
			return nil
		}}, nil
}

// cachedAttention adds keys and values to caches, which it changes in place if results and operands
// are the same memory.
func cachedAttention(c *program.Call, o plan.Options) (*plan.Kernel, error) {
	s, q, cache := c.Setting.(network.Attending), c.Meaning.Inputs[0].Type.Shape,
		c.Meaning.Inputs[3].Type.Shape
	batch, n, heads, size, keyHeads, length := q[0], q[1], q[2], q[3], cache[1], cache[2]
	group := heads / keyHeads
	scratch := lists.Map(c.Meaning.Inputs[:3], func(in program.Input) plan.Scratch {
		return plan.Scratch{Type: in.Type}
	})
	return &plan.Kernel{InPlace: true, BFloat16: plan.BFloat16{Operands: []bool{true, true, true}},
		Gradients: []bool{false}, Scratch: scratch,
		Forward: func(m plan.Memory, parallel loops.Parallel) error {
			operands := make([][]float32, 3)
			for i, x := range m.Operands[:3] {
				operands[i] = rounded(x, m.Scratch[i].([]float32), o)
			}
			y := m.Results[0].([]float32)
			keys, values := m.Results[1].([]float32), m.Results[2].([]float32)
			for i, to := range [][]float32{keys, values} {
				if from := m.Operands[3+i].([]float32); &from[0] != &to[0] {
					copy(to, from)
				}
			}
			start, first := int(m.Operands[5].([]int32)[0]), m.Operands[6].([]int32)
			parallel(batch*keyHeads, func(i int) {
				for t := range n {
					row := ((i/keyHeads*n+t)*keyHeads + i%keyHeads) * size
					at := (i*length + start + t) * size
					copy(keys[at:at+size], operands[1][row:])
					copy(values[at:at+size], operands[2][row:])
				}
			})
			const most = 8 // tokens that read the keys together
			blocks := (n + most - 1) / most
			parallel(batch*keyHeads*blocks, func(task int) {
				i, begin := task/blocks, task%blocks*most
				count, sequence, head := min(most, n-begin), i/keyHeads, i%keyHeads
				seen := func(t int) (from, to int) {
					from, to = min(int(first[sequence]), start+t), start+t+1
					if s.Window > 0 {
						from = max(from, to-s.Window)
					}
					return from, to
				}
				part := func(cache []float32, from, to int) linalg.MatrixOf[float32] {
					return linalg.RowMajor(cache[(i*length+from)*size:(i*length+to)*size], to-from, size)
				}
				begins, _ := seen(begin)
				_, ends := seen(begin + count - 1)
				queries := make([]float32, 0, count*group*size)
				for t := range count {
					at := ((sequence*n+begin+t)*heads + head*group) * size
					queries = append(queries, operands[0][at:at+group*size]...)
				}
				rows := count * group
				weights := linalg.RowMajor(make([]float32, rows*(ends-begins)), rows, ends-begins)
				linalg.FewTimes(weights, linalg.RowMajor(queries, rows, size), part(keys, begins, ends))
				for r := range rows {
					t := begin + r/group
					from, to := seen(t)
					row := weights.Data[r*(ends-begins):][from-begins : to-begins]
					loops.Softcap(row, s.Cap/s.Scale)
					loops.Softmax(row, float32(s.Scale))
					if o.Arithmetic == matmul.BFloat16 {
						loops.RoundToBFloat16(row, row)
					}
					at := ((sequence*n+t)*heads + head*group + r%group) * size
					linalg.VectorTimes(y[at:at+size], row, part(values, from, to))
				}
			})
			return nil
		}}, nil
}

// rounded returns floats as operands of products, in scratch if they are rounded.
func rounded(memory any, scratch []float32, o plan.Options) []float32 {
	switch x := memory.(type) {
	case []uint16:
		loops.FromBFloat16(scratch, x)
		return scratch
	case []float32:
		if o.Arithmetic == matmul.BFloat16 {
			loops.RoundToBFloat16(scratch, x)
			return scratch
		}
		return x
	}
	return nil
}
