package build_test

import (
	"fmt"
	"log"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/config"
)

// This example builds the model of a configuration and prints its method.
func Example() {
	cfg, err := config.Parse("run.toml", []byte(`
model    = { layers = 2, width = 32, heads = 2, hidden = 64, context = 16, vocab = 257 }
data     = { train = "train.tokens", validation = "val.tokens" }
train    = { steps = 1000, batch = 4 }
schedule = { rate = 3e-3 }
method   = { lambda = 5.0 }
[quantizer]
plugin = "quest"
`), nil)
	if err != nil {
		log.Fatal(err)
	}
	m, err := build.Model(cfg)
	if err != nil {
		log.Fatal(err)
	}
	quantized := architecture.CountParams(m.Params(),
		func(p architecture.Param) bool { return p.Quantized })
	fmt.Printf("%d of %d parameters are quantized\n", quantized,
		architecture.CountParams(m.Params(), nil))
	cage := cfg.Method.CAGE
	fmt.Printf("%s, λ at the end: %v\n", cage.Form, cage.Coefficient(cfg.Train.Steps, cfg.Train.Steps))
	// Output:
	// 20480 of 37088 parameters are quantized
	// decoupled, λ at the end: 5
}
