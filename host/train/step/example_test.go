package step_test

import (
	"context"
	"fmt"
	"log"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/sdk"
)

// Example trains a model with a vocabulary of eight tokens on one sequence by gradient descent.
// Package build makes the plans of real runs.
func Example() {
	device, err := engine.Open(device.CPU, engine.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()
	llama, err := model.New(architecture.Settings{Kind: architecture.KindLlama, Layers: 1, Heads: 2,
		Width: 16, Hidden: 32, Vocab: 8}, model.Options{})
	if err != nil {
		log.Fatal(err)
	}
	plan := step.Plan{Model: llama, Batch: 1, Context: 8, Accumulate: 1}
	for _, p := range llama.Params() {
		optimizer, err := sdk.BuildOptimizer(descent{}, sdk.Tensor{Name: p.Name, Shape: p.Dims})
		if err != nil {
			log.Fatal(err)
		}
		plan.Rules = append(plan.Rules, cage.Rule{Name: p.Name, Shape: p.Dims, Optimizer: optimizer,
			RateFactor: 1})
	}
	compiled, err := step.Compile(device, plan)
	if err != nil {
		log.Fatal(err)
	}
	defer compiled.Close()
	state, err := compiled.NewState(context.Background(), 1, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer state.Close()
	tokens := [][]int32{{0, 1, 2, 3, 4, 5, 6, 7, 0}}
	for t := 1; t <= 200; t++ {
		result, err := compiled.Step(state, tokens, step.Settings{Step: t, Rate: 0.3, NextRate: 0.3})
		if err != nil {
			log.Fatal(err)
		}
		if t == 1 || t == 200 {
			fmt.Printf("step %d: loss %.1f\n", t, result.Loss)
		}
	}
	// Output:
	// step 1: loss 2.1
	// step 200: loss 0.0
}
