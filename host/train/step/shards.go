package step

import (
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/update"
)

// Several replicas of a device can share what each would otherwise have whole ([device.Shard]): of
// a divided tensor each keeps its rows between the stages of a step. All that a stage reads is
// whole for it, and remembers its rows where it has been gathered from them; what follows from rows
// is computed by rows where the programs allow it (packages engine and lower). So stages know
// nothing of this, but for gradients, of which rows are summed, and the weights of a forward pass,
// which are gathered where they are read.

// stored are the kinds of tensors, by the first words of their names, that replicas keep by rows.
var stored = map[device.Shard][]string{
	device.ShardStates:    {"state", "gradient", "probed"},
	device.ShardGradients: {"state", "gradient", "probed", "sum"},
	device.ShardFull:      {"state", "gradient", "probed", "sum", "param", "value", "residual", "point", "evaluated"},
}

// divided reports whether replicas keep a tensor by rows; see [update.Divided]. Vectors are whole
// everywhere, such as the gains of norms, and so are the trained parameters of quantizers.
func (p *Plan) divided(name string, dims []int) bool {
	kind, of, _ := strings.Cut(name, "/")
	return p.replicas > 1 && slices.Contains(stored[p.Shard], kind) && len(dims) > 1 && dims[0]%p.replicas == 0 &&
		!strings.HasPrefix(of, "quantizer.") && !strings.HasPrefix(of, "kept/")
}

// dividedTensors is divided if replicas keep anything by rows, else nil.
func (p *Plan) dividedTensors() update.Divided {
	if p.replicas > 1 && stored[p.Shard] != nil {
		return p.divided
	}
	return nil
}

func (c *Compiled) put(t Tensor, data []float32) (*engine.Buffer, error) {
	return update.Upload(c.dev, data, t.Storage, c.plan.divided(t.Name, t.Dims), t.Dims...)
}

// fill makes a tensor whose elements are set by write, as the replicas keep it.
func (c *Compiled) fill(name string, dims []int, write func([]float32) error) (*engine.Buffer, error) {
	if !c.plan.divided(name, dims) {
		return engine.Fill(c.dev, dims, write)
	}
	data := make([]float32, floatShape(dims...).Size())
	if err := write(data); err != nil {
		return nil, err
	}
	return engine.UploadSharded(c.dev, data, dims...)
}
