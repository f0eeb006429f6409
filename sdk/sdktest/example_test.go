package sdktest_test

import (
	"fmt"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/sdktest"
)

// halves rounds each row to multiples of half its largest magnitude. In a row of zeros it divides
// zero by zero.
type halves struct{}

func (halves) Describe() sdk.Description {
	return sdk.Description{Name: "halves",
		Doc: "Rounds each row to multiples of half its largest magnitude."}
}

func (halves) Quantize(b *program.Builder, x program.Value, _ sdk.Site) (sdk.Quantized, error) {
	scale := x.Abs().MaxRow().Scale(0.5)
	return sdk.Quantized{Value: x.Div(scale).Round().Mul(scale), Homogeneous: true}, nil
}

// In a test of the plugin, one line runs the kit: sdktest.Quantizer(t, halves{}). Here the report
// is printed, as by the command "cage plugins test".
func ExampleCheckQuantizer() {
	report := sdktest.CheckQuantizer(sdktest.NewQuantizer(halves{}))
	for _, check := range report.Checks {
		if check.Status == sdktest.Fail {
			fmt.Printf("%s: %s\n", check.Name, check.Failures[0])
		}
	}
	// Output:
	// zeros: on reference, weight [4 33]: value of zeros is not finite at [0 0]: got NaN
}
