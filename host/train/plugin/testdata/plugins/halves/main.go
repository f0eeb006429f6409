// Command halves is a plugin that tests build from source.
package main

import (
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// halves rounds to multiples of a half.
type halves struct{}

func (halves) Describe() sdk.Description {
	return sdk.Description{Name: "halves", Version: "1", Doc: "Rounds to multiples of a half."}
}

func (halves) Quantize(_ *program.Builder, x program.Value, _ sdk.Site) (sdk.Quantized, error) {
	return sdk.Quantized{Value: x.Scale(2).Round().Scale(0.5)}, nil
}

func main() { sdk.ServeQuantizer(halves{}) }
