package layerwise

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/deploy/posttrain"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// grid finds the levels of a weight, with the codes and scales that the quantizer gives it.
func (q *quantizer) grid(a posttrain.Answer, largest float64) (*posttrain.Grid, error) {
	switch {
	case len(q.dims) != 2:
		return nil, fmt.Errorf("its shape %v is no matrix", q.dims)
	case !q.hasCodes() || q.program.Unpack == nil:
		return nil, fmt.Errorf("the quantizer cannot say what numbers its codes stand for (it does not implement Packer)")
	}
	probe := q.probe(largest)
	_, other, err := q.quantize(probe)
	if err != nil {
		return nil, err
	}
	codes, err := posttrain.Alphabet(a.Codes, other.Codes)
	if err != nil {
		return nil, err
	}
	numbers, err := q.numbers(codes)
	if err != nil {
		return nil, err
	}
	return posttrain.NewGrid(a, numbers, q.dims[0], q.dims[1])
}

// probeRows are rows of a probe that differ.
const probeRows = 64

// probe is a matrix for which a quantizer of whatever kind gives all its codes, or the first and the last: its rows are,
// where the quantizer rounds, ramps in order and in disorder, normal numbers, and a few large ones among small ones.
func (q *quantizer) probe(largest float64) []float32 {
	rows, columns := q.dims[0], q.dims[1]
	rng := rand.New(rand.NewPCG(0, 0))
	ramp := func(i int) float64 { return 2*float64(i)/float64(max(1, columns-1)) - 1 }
	x := make([]float64, 0, min(rows, probeRows)*columns)
	for row := range min(rows, probeRows) {
		order := rng.Perm(columns)
		for i := range columns {
			var v float64
			switch row % 4 {
			case 0:
				v = ramp(i)
			case 1:
				v = ramp(order[i])
			case 2:
				v = rng.NormFloat64() / 3
			case 3:
				if v = rng.NormFloat64() / 1000; i%16 == 0 {
					v = math.Copysign(1, float64(i/16%2)-0.5)
				}
			}
			x = append(x, v*largest)
		}
	}
	_ = posttrain.Rotate(x, columns, q.block) // the program has rotated blocks of this size, so that they fit
	once := toFloat32(x)
	return slices.Repeat(once, (rows*columns+len(once)-1)/len(once))[:rows*columns]
}

// numbers are those that codes stand for, in units of the scale.
func (q *quantizer) numbers(codes []int32) (map[int32]float32, error) {
	size := q.dims[0] * q.dims[1]
	ones := slices.Repeat([]float32{1}, elements(q.scaleShape()))
	unrotated, err := q.withoutRotation(q.program.Unpack)
	if err != nil {
		return nil, err
	}
	out := map[int32]float32{}
	for part := range slices.Chunk(codes, size) {
		values, err := q.unpackBy(unrotated, append(slices.Clone(part), slices.Repeat(part[:1], size-len(part))...), ones)
		if err != nil {
			return nil, err
		}
		for i, c := range part {
			out[c] = values[i]
		}
	}
	return out, nil
}

// unpack is the weight that codes and scales stand for.
func (q *quantizer) unpack(codes []int32, scale []float32) ([]float32, error) {
	return q.unpackBy(q.program.Unpack, codes, scale)
}

func (q *quantizer) unpackBy(p *program.Program, codes []int32, scale []float32) ([]float32, error) {
	shape := q.scaleShape()
	specs := []engine.Spec{{Name: sdk.OutputCodes, Shape: shapes.Make(dtypes.Int32, q.dims...)}, {Name: sdk.OutputScale, Shape: shapes.Make(dtypes.Float32, shape...)}}
	e, err := q.dev.Compile("unpack "+p.Name, specs, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		for i, input := range p.Inputs {
			if input.Name == sdk.OutputCodes {
				in[i] = graph.ConvertDType(in[i], dtypeOf(input.Type.DType))
			}
		}
		return []*graph.Node{lower.Lower(g, p, in)[sdk.OutputValue]}
	})
	if err != nil {
		return nil, err
	}
	defer e.Close()
	c, err := engine.Upload(q.dev, codes, q.dims...)
	if err != nil {
		return nil, err
	}
	defer c.Finalize()
	s, err := engine.Upload(q.dev, scale, shape...)
	if err != nil {
		return nil, err
	}
	defer s.Finalize()
	out, err := e.Run([]*engine.Buffer{c, s}, nil)
	if err != nil {
		return nil, err
	}
	defer out[0].Finalize()
	return engine.Download[float32](out[0])
}

// dtypeOf is the device's type of codes.
func dtypeOf(d program.DType) dtypes.DType {
	switch d {
	case program.Float:
		return dtypes.Float32
	case program.Uint:
		return dtypes.Uint32
	}
	return dtypes.Int32
}

func elements(shape []int) int { return int(program.FloatType(shape...).Size()) }
