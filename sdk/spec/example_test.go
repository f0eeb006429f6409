package spec_test

import (
	"fmt"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// half rounds to multiples of one half.
type half struct{}

func (half) Describe() sdk.Description { return sdk.Description{Name: "half"} }

func (half) Quantize(_ *program.Builder, x program.Value, _ sdk.Site) (sdk.Quantized, error) {
	return sdk.Quantized{Value: x.Scale(2).Round().Scale(0.5)}, nil
}

// A host reads the programs of an answer, and finds their inputs and outputs by name.
func Example() {
	var q spec.Quantizer
	q, err := sdk.BuildQuantizer(half{}, sdk.Site{Role: sdk.RoleWeight, Name: "w", Shape: []int{2, 4}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for name, p := range q.Programs() {
		value, _ := p.Output(spec.OutputValue)
		fmt.Println(name, "is", p.Inputs[p.Input(spec.InputX)].Type, "to", p.TypeOf(value))
	}
	fmt.Println(q.Check([]int{4, 4}))
	// Output:
	// quantize is float[2,4] to float[2,4]
	// the quantizer's program must take x: float[4,4], and may take noise: uint[2], shared_noise: uint[2], step: float, steps: float after them, in this order
}
