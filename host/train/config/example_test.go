package config_test

import (
	"fmt"
	"strings"

	"github.com/cage-qat/cage/host/train/config"
)

const run = `[model]
layers = 4
width = 128
heads = 4
context = 256

[data]
train = "data/train.tok"
validation = "data/validation.tok"

[train]
steps = 1000
batch = 8

[schedule]
rate = 2e-3

[quantizer]
plugin = "quest"
bits = 4
`

func Example() {
	c, err := config.Parse("demo.toml", []byte(run), []string{"train.steps=50", "quantizer.bits=3"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.Train.Steps, c.Schedule.WarmupSteps(c.Train.Steps), c.Model.Hidden,
		c.Method.CAGE.Form)
	fmt.Println(c.Quantizer.Weights.Name, c.Quantizer.Weights.Params["bits"])

	_, err = config.Parse("demo.toml", []byte(strings.Replace(run, "batch", "bach", 1)),
		[]string{"method.silence=1"})
	fmt.Println(err)

	// A parameter that the plugin does not have:
	e := c.ErrorAt(c.Quantizer.Activations.Path("bits"), "unknown parameter")
	fmt.Println(e)
	// Output:
	// 50 5 512 decoupled
	// quest 3
	// demo.toml:13: train.bach: unknown key; did you mean train.batch?
	// --set method.silence=1: method.silence: found the integer 1; want a number of at least 0 and below 1
	// --set quantizer.bits=3: quantizer.bits: unknown parameter
}

func ExampleQuantizer_For() {
	c, err := config.Parse("demo.toml", []byte(run+`
[[quantizer.overrides]]
match = "layers.0.*"
plugin = "absmax"
bits = 8

[[quantizer.overrides]]
match = ["*.attn.out", "*.mlp.down"]
role = "weights"
plugin = "none"
`), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, name := range []string{"layers.0.attn.qkv", "layers.0.attn.out", "layers.1.mlp.w1"} {
		if p := c.Quantizer.For(config.RoleWeights, name); p != nil {
			fmt.Println(name, p.Name, p.Params["bits"], p.Table)
		} else {
			fmt.Println(name, "unquantized")
		}
	}
	// Output:
	// layers.0.attn.qkv absmax 8 quantizer.overrides[0]
	// layers.0.attn.out unquantized
	// layers.1.mlp.w1 quest 4 quantizer
}
