package quantize_test

import (
	"context"
	"fmt"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/deploy/posttrain"
	"github.com/cage-qat/cage/host/deploy/quantize"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/spec"
)

// A small model is quantized by GPTQ, for the inputs of its layers on two short texts.
func ExampleBlocks() {
	device, err := engine.Open(device.CPU, engine.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer device.Close()
	m, err := model.New(architecture.Settings{Kind: architecture.KindLlama, Layers: 2, Width: 8,
		Heads: 1, Hidden: 16, Vocab: 10, Context: 4,
		RopeTheta: 1e4, RopePairs: architecture.Interleaved, NormEps: 1e-5, InitStd: 0.2},
		model.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	start, programs := map[string][]float32{}, map[string]spec.Quantizer{}
	for _, p := range m.Params() {
		start[p.Name] = p.Init(1)
		if p.Quantized {
			programs[p.Name], _ = sdk.BuildQuantizer(rounding{},
				sdk.Site{Role: sdk.RoleWeight, Name: p.Name, Shape: p.Dims})
		}
	}
	run := quantize.Blocks{
		Settings: posttrain.Settings{Method: posttrain.GPTQ, Damping: 0.01, Scales: posttrain.AutoScales},
		Device:   device, Model: m.(model.Language), Weights: programs,
		Values:    func(param string) ([]float32, error) { return start[param], nil },
		Sequences: [][]int32{{1, 2, 3, 4}, {5, 6, 7, 8}}, Batch: 2, Context: 4,
		Block: func(block int, weights []*quantize.Quantized) error {
			fmt.Println("block", block, "has", len(weights), "quantized weights, the first is",
				weights[0].Report.Name)
			return nil
		},
	}
	if err := run.Do(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// block 0 has 5 quantized weights, the first is layers.0.attn.qkv
	// block 1 has 5 quantized weights, the first is layers.1.attn.qkv
}
