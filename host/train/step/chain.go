package step

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// Step is [Compiled.Run] on micro-batches given as flat [batch, context+1] token ids.
func (c *Compiled) Step(s *State, batches [][]int32, set Settings) (Result, error) {
	b, err := c.Load(batches)
	if err != nil {
		return Result{}, err
	}
	return c.Run(s, b, set)
}

// Run runs one optimizer step on the plan's Accumulate micro-batches, whose buffers are freed.
// Parameters and states are replaced in s. If the loss or the gradient's norm is not finite, s
// keeps its values (though perhaps in new buffers), and Result.Skipped is set. After an error
// during the update, s is no longer consistent, because its buffers were donated
// ([State.Consistent]).
func (c *Compiled) Run(s *State, b *Batches, set Settings) (Result, error) {
	defer b.Close()
	run := c.runChain
	chained := set.ParetoSTE || set.Pareto || c.refresher.Due(set.Step) ||
		s.Pending.Arrives(set.Step) || c.plan.probesDue(set.Step) != "" // the host takes part
	if c.isSingle() && !chained {
		run = c.runSingle
	}
	if c.plan.Distillation != nil && c.teacher == nil {
		return Result{}, errors.New("step: the teacher's parameters are not loaded")
	}
	res, err := run(s, b, set)
	if err == nil {
		s.Unsearched = !res.Skipped && len(c.plan.searched(set.Step)) > 0
	}
	return res, err
}

// runChain runs a step as a chain of executables. They read and write tensors in t:
// the state and intermediate results.
func (c *Compiled) runChain(s *State, batches *Batches, set Settings) (res Result, err error) {
	t := maps.Clone(s.Tensors)
	defer keepState(s.Tensors, t)
	if err := c.addStepInputs(t, set); err != nil {
		return res, err
	}
	for _, k := range c.plan.keys.optimizer { // separately, as updates read them
		words := c.plan.keyValues([]key{k}, set.Step, 0, 0)
		if t[k.node], err = engine.Upload(c.dev, words, 2); err != nil {
			return res, err
		}
	}
	if !c.plan.FullPrecision || set.Statistics || set.ParetoSTE || set.Pareto ||
		slices.ContainsFunc(c.plan.rules(updateKind{mode: c.mode(set)}), cage.Rule.Quantizes) {
		if err := c.runQuantize(&c.plan, t); err != nil { // Q(x)
			return res, err
		}
	}
	kind := gradientKind{full: c.plan.FullPrecision}
	if err := c.runGradients(t, batches, set.Step, kind, &res); err != nil { // ∇f(Q(x))
		return res, err
	}
	if err := c.runFinish(t, &res); err != nil || !res.checkFinite() { // mean gradients and norms
		return res, err
	}
	if err := c.measurePareto(t, batches, set, &res); err != nil {
		return res, err
	}
	scalars, err := c.collect(t, set, &res) // sums that optimizers collect over tensors
	if err == nil {
		err = c.probe(s, t, batches, set, scalars, &res) // second gradients
	}
	if err == nil && !res.Skipped {
		err = c.runOpaque(t, set, scalars, res.Loss)
	}
	if err != nil || res.Skipped {
		return res, err
	}
	began := time.Now()
	s.replace()
	res.Overhead += time.Since(began)
	if err := c.takeOpaque(t); err != nil {
		return res, err
	}
	observed, err := c.refresh(s, t, set, scalars, &res) // preconditioners
	if err != nil {
		return res, err
	}
	form := updateKind{mode: c.mode(set), part: cage.Updating, observed: observed,
		probes:     c.plan.probesDue(set.Step),
		statistics: set.Statistics && len(c.plan.quantizedParams()) > 0}
	if form.statistics && len(c.plan.Adapters) > 0 {
		e, err := c.compileOnce("merged", c.plan.mergedStage)
		if err == nil {
			err = e.Run(t)
		}
		if err != nil {
			return res, err
		}
	}
	measures, err := c.runKind(t, form, scalars) // x_{t+1}, by Algorithm 1
	if err != nil {
		return res, err
	}
	c.setMeasures(measures, &res)
	for _, state := range c.plan.quantizerStates() {
		if next := t[nextName(state.Name)]; next != nil { // other states change only by searches
			t[state.Name].Finalize()
			t[state.Name] = next
			delete(t, nextName(state.Name))
		}
	}
	s.inconsistent = false
	return res, nil
}

func (c *Compiled) mode(set Settings) cage.Mode {
	return cage.Of(c.plan.Rules).Mode(
		cage.At{Step: set.Step, Steps: set.Steps, Coefficient: set.Lambda})
}

// runQuantize computes the values of the weights with the quantizers of a plan, if it has any.
func (c *Compiled) runQuantize(p *Plan, t stage.Tensors, borrowed ...stage.Tensors) error {
	e, err := c.quantize(p)
	if e == nil || err != nil {
		return err
	}
	return e.Run(t, borrowed...)
}

// runGradients runs all micro-batches. It adds the summed gradients to t and the losses to res.
func (c *Compiled) runGradients(
	t stage.Tensors, b *Batches, step int, kind gradientKind, res *Result,
) error {
	batches, err := b.uploadSeparate()
	if err != nil {
		return err
	}
	sums := make([]float64, c.plan.lossCount())
	for i, tokens := range batches {
		kind.sum = i > 0
		e, err := c.gradient(kind)
		if err == nil && !kind.full {
			err = c.addBatchKeys(t, activationKeysName, c.plan.keys.activations, step, i, i+1)
		}
		if err == nil && kind.sampled {
			err = c.addBatchKeys(t, labelKeysName, labelKeys, step, i, i+1)
		}
		if err == nil {
			err = e.Run(t, c.teacher, stage.Tensors{tokensName: tokens})
		}
		if err != nil {
			return err
		}
		losses, err := engine.Download[float32](t[lossName])
		if err != nil {
			return err
		}
		for j, loss := range losses {
			sums[j] += float64(loss)
		}
	}
	c.plan.setLoss(sums, res)
	return nil
}

// runFinish replaces the summed gradients in t by mean gradients, and stores their norms in res.
func (c *Compiled) runFinish(t stage.Tensors, res *Result) error {
	e, err := c.finish()
	if err != nil {
		return err
	}
	if err := e.Run(t); err != nil {
		return err
	}
	squares, err := engine.Download[float32](t[normsName])
	if err == nil {
		res.setNorms(squares)
	}
	return err
}

func (c *Compiled) collect(t stage.Tensors, set Settings, res *Result) (stage.Scalars, error) {
	scalars := c.scalars(set, res.GradNorm, res.Loss)
	kind := updateKind{mode: c.mode(set), part: cage.Collecting}
	collected, err := c.runKind(t, kind, scalars)
	for name, values := range collected {
		sum := 0.0
		for _, r := range c.plan.Rules { // in a fixed order, which determines the bits of a sum
			sum += values[r.Name]
		}
		scalars[name] = float32(sum)
	}
	return scalars, err
}

// refresh recomputes the preconditioners that are due at this update. It first installs the results
// of earlier refreshes that take effect now. If refreshes are due, all optimizers then observe the
// gradient, and the refreshes run. observed reports whether the optimizers have observed the
// gradient, because the update must then not make them observe it again.
func (c *Compiled) refresh(
	s *State, t stage.Tensors, set Settings, scalars stage.Scalars, res *Result,
) (observed bool, err error) {
	late, err := c.refresher.Install(&s.Pending, t, set.Step)
	res.FailedRefreshes = late
	if err != nil || !c.refresher.Due(set.Step) {
		return false, err
	}
	observe := updateKind{mode: c.mode(set), part: cage.Observing}
	if _, err := c.runKind(t, observe, scalars); err != nil {
		return false, err
	}
	failed, err := c.refresher.Run(&s.Pending, t, set.Step)
	for _, r := range c.plan.Rules {
		given := program.KindGivenGradient.Of(r.Name)
		t[given].Finalize()
		delete(t, given)
	}
	res.FailedRefreshes = append(res.FailedRefreshes, failed...)
	return true, err
}

// clipEpsilon keeps the clip factor finite, as in PyTorch's clip_grad_norm_.
const clipEpsilon = 1e-6

// scalars returns the scalar inputs of the update, computed in float64.
func (c *Compiled) scalars(set Settings, norm, loss float64) stage.Scalars {
	clip := 1.0
	if c.plan.Clip > 0 {
		clip = math.Min(1, c.plan.Clip/(norm+clipEpsilon))
	}
	return stage.Scalars{
		spec.InputStep:     float32(set.Step),
		spec.InputRate:     float32(set.Rate),
		cage.InputNextRate: float32(set.NextRate),
		cage.InputClip:     float32(clip),
		cage.InputLambda:   float32(set.Lambda),
		spec.InputSteps:    float32(set.Steps),
		spec.InputLoss:     float32(loss),
	}
}

// Batches holds the micro-batches of one step, which may still be uploading.
type Batches struct {
	c    *Compiled
	host [][]int32
	// all holds all micro-batches, for a step that is a single executable, ordered by replica.
	all *engine.Buffer
	// each holds the micro-batches separately, for the chain.
	each []*engine.Buffer
}

// Load uploads the micro-batches of one step, each given as flat [batch, context+1] token
// ids, where batch counts the sequences of all replicas together. The slices must not
// change until the step is done. Load may be called while a step runs, to upload the input of the
// next step ahead of time.
func (c *Compiled) Load(batches [][]int32) (*Batches, error) {
	p := &c.plan
	if len(batches) != p.Accumulate {
		return nil, fmt.Errorf("step: got %d micro-batches, want %d", len(batches), p.Accumulate)
	}
	n := c.dev.Count() * p.tokenSpec().Shape.Size()
	for i, b := range batches {
		if len(b) != n {
			return nil, fmt.Errorf("step: micro-batch %d has %d elements, want %d", i, len(b), n)
		}
	}
	b := &Batches{c: c, host: batches}
	var err error
	if c.isSingle() {
		_, err = b.uploadStacked()
	} else {
		_, err = b.uploadSeparate()
	}
	if err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// Close frees the device buffers. [Compiled.Run] does so, too.
func (b *Batches) Close() {
	b.all.Finalize()
	engine.FinalizeAll(b.each...)
	b.all, b.each = nil, nil
}

// uploadStacked uploads all micro-batches as one tensor, the input of a step that is a single
// executable, unless that is done already.
func (b *Batches) uploadStacked() (*engine.Buffer, error) {
	if b.all != nil {
		return b.all, nil
	}
	replicas := b.c.dev.Count()
	part := len(b.host[0]) / replicas
	tokens := make([]int32, 0, len(b.host)*len(b.host[0]))
	for r := range replicas {
		for _, batch := range b.host {
			tokens = append(tokens, batch[r*part:(r+1)*part]...)
		}
	}
	dims := append([]int{replicas * len(b.host)}, b.c.plan.batchDims()...)
	var err error
	b.all, err = engine.UploadSharded(b.c.dev, tokens, true, dims...)
	return b.all, err
}

// uploadSeparate uploads each micro-batch as a separate tensor for the chain, unless that is done
// already.
func (b *Batches) uploadSeparate() ([]*engine.Buffer, error) {
	for len(b.each) < len(b.host) {
		t, err := b.c.uploadBatch(b.host[len(b.each)])
		if err != nil {
			return nil, err
		}
		b.each = append(b.each, t)
	}
	return b.each, nil
}

func (c *Compiled) uploadBatch(tokens []int32) (*engine.Buffer, error) {
	dims := slices.Clone(c.plan.batchDims())
	dims[0] *= c.dev.Count()
	return engine.UploadSharded(c.dev, tokens, true, dims...)
}
