package step

import (
	"fmt"
	"slices"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/update"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/decode"
)

// withoutGraph reports whether the next token of all sequences can be read in the host's memory, which is faster than a
// graph: not where products are rounded, nor where a sequence has not begun.
func (d *Decoder) withoutGraph() bool {
	c := d.e.c
	_, ok := c.plan.Model.(model.Network)
	return ok && c.dev.SharesMemory() && c.dev.Precision() == device.Float32 && int(slices.Max(d.first)) <= d.start
}

// nextToken is [Decoder.Next] for one token of each sequence, without a graph.
func (d *Decoder) nextToken(tokens []int32) ([]float32, error) {
	network, err := d.e.decodeNetwork()
	if err != nil {
		return nil, err
	}
	caches := make([][]float32, len(d.t)-1)
	for i := range caches {
		if caches[i], err = engine.Data[float32](d.t[cacheName(i)]); err != nil {
			return nil, err
		}
	}
	var quantize decode.Quantizer
	if len(d.e.c.plan.Pieces[len(tokens)]) > 0 {
		quantize = func(site model.ActivationSite, x []float32) error {
			return d.e.quantizeActivation(site, len(tokens), x)
		}
	}
	logits, err := network.Next(tokens, decode.Place{Length: d.length, Start: d.start, First: d.first}, caches, quantize)
	if err != nil {
		return nil, err
	}
	d.start++
	return logits, nil
}

// decodeNetwork returns the network of the evaluator's parameters.
func (e *Evaluator) decodeNetwork() (*decode.Network, error) {
	if e.network != nil {
		return e.network, nil
	}
	c := e.c
	weights := map[string][]float32{}
	for _, p := range c.plan.Model.Params() {
		var err error
		if weights[p.Name], err = engine.Data[float32](e.t[c.plan.used(false)(p.Name)]); err != nil {
			return nil, err
		}
	}
	var err error
	e.network, err = decode.New(c.plan.Model.(model.Network), weights, decode.Options{Threads: c.dev.Threads(), Halves: true})
	return e.network, err
}

// quantizeActivation quantizes an activation of that many tokens in place, as the training does.
func (e *Evaluator) quantizeActivation(site model.ActivationSite, tokens int, x []float32) error {
	q, ok := e.c.plan.Pieces[tokens][site.Name]
	if !ok {
		return nil
	}
	exec, err := e.c.once(fmt.Sprintf("activation %d %s", tokens, site.Name), func() stage { return activationStage(q, site, tokens) })
	if err != nil {
		return err
	}
	t := update.Tensors{}
	for _, p := range trainedOf(q, site.Name) {
		t[update.Param(p.Name)] = e.t[update.Param(p.Name)]
	}
	return exec.quantize(e.c.dev, t, x, tokens, site.Width)
}
