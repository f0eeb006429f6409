// Command crashes is a quantizer that ends its process at one setting.
package main

import (
	"os"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

type crashes struct{}

func (crashes) Describe() sdk.Description {
	return sdk.Description{Name: "crashes", Version: "1", Doc: "Rounds to multiples.",
		Parameters: []sdk.Parameter{sdk.Int("part", 2, 2, 4, "parts of one")}}
}

func (crashes) Quantize(_ *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	if site.Int("part") == 3 {
		os.Exit(3)
	}
	n := float64(site.Int("part"))
	return sdk.Quantized{Value: x.Scale(n).Round().Scale(1 / n)}, nil
}

func main() { sdk.ServeQuantizer(crashes{}) }
