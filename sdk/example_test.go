package sdk_test

import (
	"fmt"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// absmax is symmetric round-to-nearest quantization: the largest magnitude of each row maps to the
// largest code.
type absmax struct{}

func (absmax) Describe() sdk.Description {
	return sdk.Description{
		Name:       "absmax",
		Doc:        "Symmetric round-to-nearest with one scale per row.",
		Parameters: []sdk.Parameter{sdk.Int("bits", 4, 2, 8, "bits per value")},
	}
}

func (absmax) Quantize(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	top := float64(int(1)<<(site.Int("bits")-1) - 1)
	scale := x.Abs().MaxRow().Scale(1 / top)
	codes := x.Div(scale.Max(b.Const(1e-30))).Round()
	return sdk.Quantized{Value: codes.Mul(scale), Codes: codes, Scale: scale}, nil
}

// A complete quantizer takes thirty lines. Its main function would be
//
//	func main() { sdk.ServeQuantizer(absmax{}) }
//
// The host asks for its program once for each site.
func Example() {
	values, err := absmax{}.Describe().Resolve(map[string]any{"bits": 3})
	if err != nil {
		fmt.Println(err)
		return
	}
	site := sdk.Site{Role: sdk.RoleWeight, Name: "layers.0.wq", Shape: []int{4, 64}, Values: values}
	out, err := sdk.BuildQuantizer(absmax{}, site)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(out.Program)
	// Output:
	// program absmax/layers.0.wq(%0 x: float[4,64]) {
	//   %1 = abs %0 : float[4,64]
	//   %2 = reduce_max %1 axes=[1] : float[4]
	//   %3 = reshape %2 : float[4,1]
	//   %4 = constant 0.3333333333333333 : float
	//   %5 = mul %3 %4 : float[4,1]
	//   %6 = constant 1e-30 : float
	//   %7 = max %5 %6 : float[4,1]
	//   %8 = div %0 %7 : float[4,64]
	//   %9 = round %8 : float[4,64]
	//   %10 = mul %9 %5 : float[4,64]
	//   return value=%10 surrogate=%0 codes=%9 scale=%5
	// }
}

func ExampleDescription_Resolve() {
	_, err := absmax{}.Describe().Resolve(map[string]any{"bits": 16})
	fmt.Println(err)
	// Output: plugin absmax: parameter bits: got 16, want an integer: 2 to 8
}
