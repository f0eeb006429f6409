package cage_test

import (
	"fmt"

	"github.com/cage-qat/cage/host/cage"
)

// ExampleCAGE prints λ_t, which is 0 in the first 90 % of a run and then grows to λ.
func ExampleCAGE() {
	m := cage.Default
	for _, t := range []int{1, 900, 925, 950, 1000} {
		fmt.Printf("t = %4d: λ_t = %.2f\n", t, m.Coefficient(t, 1000))
	}
	// Output:
	// t =    1: λ_t = 0.00
	// t =  900: λ_t = 0.00
	// t =  925: λ_t = 0.50
	// t =  950: λ_t = 1.00
	// t = 1000: λ_t = 2.00
}
