package plugin_test

import (
	"context"
	"fmt"

	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/sdk"
)

// Example builds a plugin from its Go package, starts it, and asks for the program
// of one site.
func Example() {
	finder, err := plugin.NewFinder() // builds into the user's cache
	if err != nil {
		fmt.Println(err)
		return
	}
	finder.Dirs = []string{"testdata/plugins"}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel() // stops plugins that still run

	quantizer, err := finder.Start(ctx, "halves", sdk.KindQuantizer, plugin.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer quantizer.Close()
	values, err := quantizer.Resolve(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	answer, err := quantizer.Quantize(ctx,
		sdk.Site{Role: sdk.RoleWeight, Name: "head", Shape: []int{8, 16}, Values: values})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(quantizer.Description().Doc)
	fmt.Print(answer.Program)
	// Output:
	// Rounds to multiples of a half.
	// program halves/head(%0 x: float[8,16]) {
	//   %1 = constant 2 : float
	//   %2 = mul %0 %1 : float[8,16]
	//   %3 = round %2 : float[8,16]
	//   %4 = constant 0.5 : float
	//   %5 = mul %3 %4 : float[8,16]
	//   return value=%5 surrogate=%0
	// }
}
