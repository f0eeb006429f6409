package reference

import (
	"math/bits"

	"github.com/cage-qat/cage/sdk/program"
)

func (m *machine) source(n *program.Node, args []Tensor) Tensor {
	out := Tensor{Type: n.Type}
	switch n.Op {
	case program.OpConstant:
		out.Floats = fill(&m.floats, n.Attr.Floats, n.Type)
		out.Ints = fill(&m.ints, n.Attr.Ints, n.Type)
	case program.OpIota:
		if n.Type.DType == program.Float {
			out.Floats = indices(&m.floats, n.Type.Shape, n.Attr.Axes[0])
		} else {
			out.Ints = indices(&m.ints, n.Type.Shape, n.Attr.Axes[0])
		}
	case program.OpRandomBits:
		key := [2]uint32{uint32(args[0].Ints[0]), uint32(args[0].Ints[1])}
		out.Ints = m.ints.take(int(n.Type.Size()))
		for i := range out.Ints {
			out.Ints[i] = int64(threefry2x32(key, [2]uint32{uint32(i), 0})[0])
		}
	}
	return out
}

// fill spreads a single element over the whole shape.
func fill[T any](p *pool[T], data []T, t program.Type) []T {
	if len(data) != 1 {
		return data
	}
	out := p.take(int(t.Size()))
	for i := range out {
		out[i] = data[0]
	}
	return out
}

func indices[T float64 | int64](p *pool[T], shape []int, axis int) []T {
	inner := 1
	for _, d := range shape[axis+1:] {
		inner *= d
	}
	out := p.take(int(program.Type{Shape: shape}.Size()))
	for rest := out; len(rest) > 0; {
		for i := range shape[axis] {
			for k := range inner {
				rest[k] = T(i)
			}
			rest = rest[inner:]
		}
	}
	return out
}

// threefry2x32 is Threefry-2x32 with 20 rounds: Salmon, Moraes, Dror and Shaw,
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011, §3.3. A round adds,
// rotates and xors; after every four rounds the next pair of key words is added
// with the count of injections so far.
func threefry2x32(key, counter [2]uint32) [2]uint32 {
	const parity = 0x1BD11BDA // makes the third key word differ from zero for a zero key
	rotations := [8]int{13, 15, 26, 6, 17, 29, 16, 24}
	words := [3]uint32{key[0], key[1], parity ^ key[0] ^ key[1]}
	x0, x1 := counter[0]+words[0], counter[1]+words[1]
	for round := range 20 {
		x0 += x1
		x1 = bits.RotateLeft32(x1, rotations[round%8]) ^ x0
		if round%4 == 3 {
			injection := round/4 + 1
			x0 += words[injection%3]
			x1 += words[(injection+1)%3] + uint32(injection)
		}
	}
	return [2]uint32{x0, x1}
}
