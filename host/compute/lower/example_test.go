package lower_test

import (
	"fmt"
	"log"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/sdk/program"
)

// A program of a plugin becomes part of a step on the device.
func ExampleLower() {
	b := program.NewBuilder("to-the-grid")
	x := b.Input("x", program.FloatType(4))
	b.Output("value", x.Round().Clip(-2, 1))
	p, err := b.Build()
	if err != nil {
		log.Fatal(err)
	}

	cpu, err := engine.Open(device.CPU, engine.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer cpu.Close()
	inputs := []engine.Spec{{Name: "x", Shape: shapes.Make(shapes.Float32, 4)}}
	step, err := cpu.Compile("example", inputs, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		return []*graph.Node{lower.Lower(g, p, in)["value"]}
	})
	if err != nil {
		log.Fatal(err)
	}
	data, err := engine.Upload(cpu, []float32{-7, -0.6, 0.5, 1.5}, 4)
	if err != nil {
		log.Fatal(err)
	}
	outputs, err := step.Run([]*engine.Buffer{data}, nil)
	if err != nil {
		log.Fatal(err)
	}
	value, err := engine.Download[float32](outputs[0])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(value)
	// Output: [-2 -1 0 1]
}
