package step

import (
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/sdk/program"
)

// Replicas of a device can shard tensors ([device.Shard]): between the stages of a step, each
// replica keeps its rows of a sharded tensor. A stage sees its inputs whole, and tracks which are
// gathered from rows; what depends on these is computed on the local rows where programs allow that
// (packages engine and lower). Stages thus ignore sharding, except that gradients are summed into
// local rows, and that the weights of a forward pass are gathered where they are read.

// stored lists the kinds of sharded tensors, by the first component of their names.
var stored = map[device.Shard][]program.Kind{
	device.ShardStates: {program.KindState, program.KindGradient, program.KindProbed},
	device.ShardGradients: {program.KindState, program.KindGradient, program.KindProbed,
		kindSum},
	device.ShardFull: {program.KindState, program.KindGradient, program.KindProbed, kindSum,
		program.KindParam, program.KindValue, kindResidual, program.KindPoint, program.KindEvaluated},
}

// divided reports whether replicas keep only rows of a tensor; see [stage.Divided]. Vectors, such
// as the gains of norms, and the trained parameters of quantizers are replicated.
func (p *Plan) divided(name string, dims []int) bool {
	kind, of, _ := strings.Cut(name, "/")
	return p.replicas > 1 && slices.Contains(stored[p.Shard], program.Kind(kind)) &&
		len(dims) > 1 && dims[0]%p.replicas == 0 &&
		!strings.HasPrefix(of, "quantizer.") && !strings.HasPrefix(of, "kept/")
}

// dividedTensors returns p.divided if any tensors are sharded, else nil.
func (p *Plan) dividedTensors() stage.Divided {
	if p.replicas > 1 && stored[p.Shard] != nil {
		return p.divided
	}
	return nil
}
