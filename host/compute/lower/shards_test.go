package lower_test

import (
	"fmt"
	"testing"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/internal/testing/randprog"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// TestShardsOfRandomPrograms compares random programs on sharded inputs with package reference.
func TestShardsOfRandomPrograms(t *testing.T) {
	for _, replicas := range []int{2, 4} {
		d := testdevice.Open(t, engine.Options{Count: replicas})
		divided := 0
		for seed := range testlevel.Sample[uint64](40, 150, 600) {
			t.Run(fmt.Sprint(replicas, " replicas, ", seed), func(t *testing.T) {
				c := randprog.New(seed,
					randprog.Options{Nodes: 5 + int(seed%31), Elements: []int{64, 256, 3000}[seed%3]})
				want, err := reference.Run(c.Program, c.Inputs)
				if err != nil {
					t.Fatal(err)
				}
				got := onShards(t, d, c.Program, c.Inputs, &divided)
				for _, o := range c.Program.Outputs {
					tol := tolerance{}
					if c.Program.TypeOf(o.Value).DType == program.Float {
						tol.abs = 2e-4 * max(1, largest(want[o.Name]))
					}
					compare(t, o.Name, tol, got[o.Name], want[o.Name], nil)
				}
				if t.Failed() {
					t.Log(c.Program)
				}
			})
		}
		t.Logf("%d replicas: %d inputs were divided", replicas, divided)
		if divided == 0 {
			t.Errorf("%d replicas: no input was divided", replicas)
		}
	}
}

// onShards executes p with every input sharded whose first axis allows it, and counts these.
func onShards(
	t *testing.T, d *engine.Device, p *program.Program, inputs map[string]reference.Tensor,
	divided *int,
) map[string]reference.Tensor {
	t.Helper()
	types := map[program.DType]shapes.DType{program.Float: shapes.Float32, program.Int: shapes.Int32,
		program.Uint: shapes.Uint32, program.Bool: shapes.Bool}
	var specs []engine.Spec
	var buffers []*engine.Buffer
	for _, in := range p.Inputs {
		shape := shapes.Make(types[in.Type.DType], in.Type.Shape...)
		spec := engine.Spec{Name: in.Name, Shape: shape}
		if spec.Sharded = shape.Rank() > 0 && shape.Dim(0)%d.Count() == 0; spec.Sharded {
			spec.Shape = shape.Clone()
			spec.Shape.Dimensions[0] /= d.Count()
			*divided++
		}
		specs, buffers = append(specs, spec),
			append(buffers, uploadDivided(t, d, inputs[in.Name], spec.Sharded))
	}
	step, err := d.Compile(t.Name(), specs, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		for i, spec := range specs {
			if spec.Sharded {
				in[i] = engine.Gather(in[i])
			}
		}
		return lower.Outputs(g, p, in)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer step.Close()
	outputs, err := step.Run(buffers, nil)
	if err != nil {
		t.Fatal(err)
	}
	results := map[string]reference.Tensor{}
	for i, o := range p.Outputs {
		results[o.Name] = download(t, p.TypeOf(o.Value), outputs[i])
	}
	return results
}

func uploadDivided(
	t *testing.T, d *engine.Device, x reference.Tensor, sharded bool,
) *engine.Buffer {
	t.Helper()
	var b *engine.Buffer
	var err error
	switch x.Type.DType {
	case program.Float:
		b, err = put(d, convert(x.Floats, func(v float64) float32 { return float32(v) }), x.Type.Shape,
			sharded)
	case program.Int:
		b, err = put(d, convert(x.Ints, func(v int64) int32 { return int32(v) }), x.Type.Shape, sharded)
	case program.Uint:
		b, err = put(d, convert(x.Ints, func(v int64) uint32 { return uint32(v) }), x.Type.Shape, sharded)
	default:
		b, err = put(d, x.Bools(), x.Type.Shape, sharded)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func put[T engine.Element](
	d *engine.Device, data []T, shape []int, sharded bool,
) (*engine.Buffer, error) {
	if sharded {
		return engine.UploadSharded(d, data, true, shape...)
	}
	return engine.Upload(d, data, shape...)
}
