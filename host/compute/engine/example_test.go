package engine_test

import (
	"fmt"
	"log"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/shapes"
)

// Gradient descent on f(x) = |x|²/2. The parameters stay on the device, and each step reuses the
// memory of its input parameters.
func Example() {
	device, err := engine.Open(device.CPU, engine.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()

	inputs := []engine.Spec{{Name: "x", Shape: shapes.Make(shapes.Float32, 3)}}
	step, err := device.Compile("descend", inputs,
		func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			loss := graph.DivScalar(graph.ReduceSum(graph.Square(in[0])), 2)
			gradient := in[0]
			return []*graph.Node{graph.Sub(in[0], graph.MulScalar(gradient, 0.5)), loss}
		})
	if err != nil {
		log.Fatal(err)
	}
	x, err := engine.Upload(device, []float32{4, -8, 16}, 3)
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		out, err := step.Run([]*engine.Buffer{x}, []bool{true})
		if err != nil {
			log.Fatal(err)
		}
		x = out[0]
		loss, err := engine.Download[float32](out[1])
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("loss", loss[0])
	}
	result, err := engine.Download[float32](x)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result)
	// Output:
	// loss 168
	// loss 42
	// loss 10.5
	// [0.5 -1 2]
}
