package direct_test

import (
	"fmt"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/study/bench/direct"
)

// The root mean square of the row is 5, and so is the step of three bits with K = 3.
func ExampleQuest() {
	if err := quantize(direct.Quest{Bits: 3, Block: 1, K: 3}, 7, 1, -1, -7); err != nil {
		fmt.Println(err)
	}
	// Output: [5 0 0 -5]
}

// quantize prints Q(x) of one row.
func quantize(q direct.Quest, row ...float32) error {
	dev, err := engine.Open("cpu", engine.Options{})
	if err != nil {
		return err
	}
	defer dev.Close()
	specs := []engine.Spec{{Name: "x", Shape: shapes.Make(dtypes.Float32, 1, len(row))}}
	forward, err := dev.Compile("forward", specs, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		value, _ := q.Forward(in[0], lower.Given{})
		return []*graph.Node{value}
	})
	if err != nil {
		return err
	}
	defer forward.Close()
	x, err := engine.Upload(dev, row, 1, len(row))
	if err != nil {
		return err
	}
	defer x.Finalize()
	out, err := forward.Run([]*engine.Buffer{x}, nil)
	if err != nil {
		return err
	}
	defer engine.FinalizeAll(out...)
	values, err := engine.Download[float32](out[0])
	fmt.Println(values)
	return err
}
