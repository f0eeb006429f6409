package conformance_test

import (
	"context"
	"fmt"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/train/conformance"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/sdktest"
)

// Example tests a plugin's executable on the reference implementation and on the CPU.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	finder, err := plugin.NewFinder() // builds into the user's cache
	if err != nil {
		fmt.Println(err)
		return
	}
	finder.Dirs = []string{"../../../plugins"}
	client, err := finder.Start(ctx, "adamw", sdk.KindOptimizer, plugin.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	device, err := engine.Open(device.CPU, engine.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer device.Close()
	machine := conformance.NewDevice(device)
	defer machine.Close()

	report := sdktest.CheckOptimizer(conformance.Optimizer(ctx, client), sdktest.On(machine))
	fmt.Println(report.Plugin, report.Machines, "failed:", report.Failed())
	// Output: adamw [reference cpu] failed: false
}
