package step

import (
	"fmt"
	"slices"

	"github.com/cage-qat/cage/host/decode"
	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/update"
)

// withoutGraph reports whether the next token of all sequences can be read in the host's memory, which is faster than a
// graph: not where products are rounded, nor where a sequence has not begun.
func (d *Decoder) withoutGraph() bool {
	c := d.e.c
	_, ok := c.plan.Model.(model.Network)
	return ok && c.dev.SharesMemory() && c.dev.Precision() == engine.Float32 && int(slices.Max(d.first)) <= d.start
}

// nextToken is [Decoder.Next] for one token of each sequence, without a graph.
func (d *Decoder) nextToken(tokens []int32) ([]float32, error) {
	if d.network == nil {
		var err error
		if d.network, err = d.e.newNetwork(len(d.first), d.length); err != nil {
			return nil, err
		}
	}
	caches := make([][]float32, len(d.t)-1)
	for i := range caches {
		var err error
		if caches[i], err = engine.Data[float32](d.t[cacheName(i)]); err != nil {
			return nil, err
		}
	}
	logits, err := d.network.Next(tokens, decode.Place{Length: d.length, Start: d.start, First: d.first}, caches)
	if err != nil {
		return nil, err
	}
	d.start++
	return logits, nil
}

// newNetwork makes a network of the evaluator's parameters for that many sequences and positions.
func (e *Evaluator) newNetwork(sequences, positions int) (*decode.Network, error) {
	c := e.c
	weights := map[string][]float32{}
	for _, p := range c.plan.Model.Params() {
		var err error
		if weights[p.Name], err = engine.Data[float32](e.t[c.plan.used(false)(p.Name)]); err != nil {
			return nil, err
		}
	}
	o := decode.Options{Threads: c.dev.Threads()}
	if len(c.plan.Pieces[sequences]) > 0 {
		o.Quantize = func(site model.ActivationSite, x []float32) error { return e.quantizeActivation(site, sequences, x) }
	}
	return decode.New(c.plan.Model.(model.Network), weights, positions, o)
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
	if t[activationName], err = engine.Upload(e.c.dev, x, tokens, site.Width); err != nil {
		return err
	}
	defer t[activationName].Finalize()
	if err := exec.run(t); err != nil {
		return err
	}
	defer t[valueName].Finalize()
	return engine.DownloadInto(t[valueName], x)
}
