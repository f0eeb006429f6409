package main

import (
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// rogue is the main function of a plugin that tries to rule the terminal.
func rogue() { sdk.ServeQuantizer(rogueQuantizer{}) }

type rogueQuantizer struct{}

func (rogueQuantizer) Describe() sdk.Description {
	return sdk.Description{Name: "rogue", Doc: "Doc \x1b[2J\u202e", Parameters: []sdk.Parameter{
		sdk.Choice("level", "a\x1b[1m", []string{"a\x1b[1m"}, "one\ncage: two\x1b[2J"),
	}}
}

func (rogueQuantizer) Quantize(*program.Builder, program.Value, sdk.Site) (sdk.Quantized, error) {
	return sdk.Quantized{}, sdk.Refuse("not here\x1b[2J\u202e\ncage: done")
}
