package engine_test

import (
	"fmt"
	"log"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
)

// Rounding has no useful gradient. Here its gradient is that of the identity, except where |x| > 2.
func ExampleCustom() {
	device, err := engine.Open(device.CPU, engine.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()
	inputs := []engine.Spec{{Name: "x", Shape: shapes.Make(dtypes.Float32, 3)}}
	step, err := device.Compile("round", inputs, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		x := in[0]
		inside := graph.LessOrEqual(graph.Abs(x), graph.Scalar(g, dtypes.Float32, 2))
		y := engine.Custom(graph.Round(x), in, func(dy *graph.Node) []*graph.Node {
			return []*graph.Node{graph.Where(inside, dy, graph.ZerosLike(dy))}
		})
		return append(graph.Gradient(graph.ReduceAllSum(graph.Square(y)), x), y)
	})
	if err != nil {
		log.Fatal(err)
	}
	x, err := engine.Upload(device, []float32{0.7, -1.8, 2.9}, 3)
	if err != nil {
		log.Fatal(err)
	}
	out, err := step.Run([]*engine.Buffer{x}, nil)
	if err != nil {
		log.Fatal(err)
	}
	for i, name := range []string{"gradient", "value"} {
		data, err := engine.Download[float32](out[i])
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(name, data)
	}
	// Output:
	// gradient [2 -4 0]
	// value [1 -2 3]
}
