package lower_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/cage-qat/cage/internal/effort"
	"github.com/cage-qat/cage/internal/randprog"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// Random programs against the oracle in double precision. Integers and bools must
// agree exactly. Floats carry the roundings of up to 40 operations in single
// precision, 6e-8 each, amplified by what the operations amplify: the generator
// keeps values below 64 and programs well conditioned, for which the oracle in
// single precision stays within 1e-4 of the largest element; the device's own
// functions (exp, tanh, sums in another order) get twice that.
func TestRandomPrograms(t *testing.T) {
	seeds := effort.Sample[uint64](30, 100, 300)
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			options := randprog.Options{Nodes: 10 + int(seed%31), Elements: []int{40, 256, 3000}[seed%3]}
			c := randprog.New(seed, options)
			want, err := reference.Run(c.Program, c.Inputs)
			if err != nil {
				t.Fatal(err)
			}
			got := run(t, c.Program, c.Inputs)
			for _, o := range c.Program.Outputs {
				tol := tolerance{}
				if c.Program.TypeOf(o.Value).DType == program.Float {
					tol.abs = 2e-4 * max(1, largest(want[o.Name]))
				}
				compare(t, o.Name, tol, got[o.Name], want[o.Name], nil)
			}
			if t.Failed() {
				t.Log(c.Program)
			}
		})
	}
}

func largest(x reference.Tensor) float64 {
	most := 0.0
	for _, v := range x.Floats {
		most = max(most, math.Abs(v))
	}
	return most
}
