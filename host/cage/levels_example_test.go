package cage_test

import (
	"fmt"

	"github.com/cage-qat/cage/host/cage"
)

// A quantizer gave some of the codes of a ternary grid; their numbers are those that its program unpacks at a scale of 1.
func ExampleNewLevels() {
	codes, err := cage.Alphabet([]int32{0, 2, 2})
	fmt.Println(codes, err)
	l := cage.NewLevels(map[int32]float32{0: -1, 1: 0, 2: 1})
	fmt.Println(l.Numbers, l.Uniform(), l.Codes[l.Nearest(0.6)])
	// Output:
	// [0 2] <nil>
	// [-1 0 1] true 2
}
