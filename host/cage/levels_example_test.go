package cage_test

import (
	"fmt"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/sdk"
)

// ExampleNewLevels prints the levels of a ternary grid.
func ExampleNewLevels() {
	l := cage.NewLevels(cage.Numbers(sdk.Integers(-1, 1, 0)))
	fmt.Println(l.Numbers, l.Uniform(), l.Codes[l.Nearest(0.6)])
	// Output:
	// [-1 0 1] true 1
}
