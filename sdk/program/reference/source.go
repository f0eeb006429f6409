package reference

import (
	"math/bits"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

func constant(n *program.Node, _ []Tensor) (Tensor, error) {
	out := Tensor{Type: n.Type}
	size := int(n.Type.Size())
	if n.Type.DType == program.Float {
		out.Floats = fill(n.Attr.Floats, size)
	} else {
		out.Ints = fill(n.Attr.Ints, size)
	}
	return out, nil
}

func iota(n *program.Node, _ []Tensor) (Tensor, error) {
	out := zeros(n.Type)
	axis := n.Attr.Axes[0]
	length, step := n.Type.Shape[axis], rowMajor(n.Type.Shape)[axis]
	for i := range out.Len() {
		if index := i / step % length; n.Type.DType == program.Float {
			out.Floats[i] = float64(index)
		} else {
			out.Ints[i] = int64(index)
		}
	}
	return out, nil
}

func randomBits(n *program.Node, args []Tensor) (Tensor, error) {
	out := zeros(n.Type)
	key := [2]uint32{uint32(args[0].Ints[0]), uint32(args[0].Ints[1])}
	for i := range out.Ints {
		out.Ints[i] = int64(threefry2x32(key, [2]uint32{uint32(i), 0})[0])
	}
	return out, nil
}

// fill repeats a single element size times. Longer data is returned as it is.
func fill[T any](data []T, size int) []T {
	if len(data) == 1 {
		return slices.Repeat(data, size)
	}
	return data
}

// threefry2x32 is Threefry-2x32 with 20 rounds: Salmon, Moraes, Dror and Shaw,
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011, §3.3. A round adds,
// rotates and xors; after every four rounds the next pair of key words is added
// with the count of injections so far.
func threefry2x32(key, counter [2]uint32) [2]uint32 {
	const parity = 0x1BD11BDA // makes the third key word nonzero for a zero key
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
