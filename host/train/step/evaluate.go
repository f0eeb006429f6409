package step

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/sdk/program"
)

// Evaluator computes losses with fixed parameters: the trained ones, or those that their optimizers
// provide for evaluation instead. The weights are quantized once, when it is created, by the
// evaluation quantizers.
type Evaluator struct {
	c     *Compiled
	own   stage.Tensors // tensors that optimizers provide, and quantized weights
	t     stage.Tensors // own, and the other tensors of the state
	short stage.Tensors // weights for reading single tokens, mostly in bfloat16
	reads map[*stage.Executable]stage.Tensors
}

// Evaluator prepares the evaluation of s, which must stay unchanged until Close.
func (c *Compiled) Evaluator(s *State) (*Evaluator, error) {
	own, err := c.evaluated(s)
	if err == nil {
		err = c.runQuantize(c.evaluationPlan, own, s.Tensors)
	}
	if err != nil {
		own.Finalize()
		return nil, err
	}
	e := &Evaluator{c: c, own: own, t: maps.Clone(s.Tensors), short: stage.Tensors{},
		reads: map[*stage.Executable]stage.Tensors{}}
	maps.Copy(e.t, own)
	return e, nil
}

// Context returns the number of tokens of the sequences that the model is trained on.
func (e *Evaluator) Context() int { return e.c.plan.Context }

// Close frees the quantized weights, and the tensors that optimizers provided.
func (e *Evaluator) Close() {
	e.own.Finalize()
	e.short.Finalize()
}

func (c *Compiled) prepareEvaluation() error {
	jobs, err := cage.Jobs(c.plan.Rules, cage.Evaluating)
	if len(jobs) > 0 && c.evaluation == nil {
		divided := c.plan.dividedTensors()
		c.evaluation, err = stage.CompileUpdate(c.dev, "evaluated weights", jobs, divided)
	}
	return err
}

// evaluated computes the tensors that optimizers provide for evaluation, under the names of the
// tensors that they replace. The caller frees them.
func (c *Compiled) evaluated(s *State) (stage.Tensors, error) {
	evaluated := stage.Tensors{}
	if err := c.prepareEvaluation(); err != nil || c.evaluation == nil {
		return evaluated, err
	}
	t := maps.Clone(s.Tensors)
	if _, err := c.evaluation.Run(t, nil); err != nil {
		return nil, err
	}
	for _, r := range c.plan.Rules {
		if b := t[program.KindEvaluated.Of(r.Name)]; b != nil {
			evaluated[program.KindParam.Of(r.Name)] = b
		}
	}
	return evaluated, nil
}

// Losses returns the losses of a batch that holds the sequences of all replicas. For a language
// model, these are the losses of every token of [batch, context+1], row by row, in nats.
func (e *Evaluator) Losses(tokens []int32) ([]float32, error) {
	t, err := e.c.uploadBatch(tokens)
	if err != nil {
		return nil, err
	}
	defer t.Finalize()
	return e.runStage(lossesKey, e.c.evaluationPlan.lossStage, stage.Tensors{tokensName: t})
}

// Logits returns the logits of every token of a batch that holds the sequences of all replicas,
// [batch, context, vocabulary], given the tokens before it.
func (e *Evaluator) Logits(tokens []int32) ([]float32, error) {
	p := e.c.evaluationPlan
	if _, ok := p.Model.(model.Language); !ok {
		return nil, fmt.Errorf("step: a model that reads no sequences has no logits")
	}
	t, err := e.c.uploadBatch(tokens)
	if err != nil {
		return nil, err
	}
	defer t.Finalize()
	return e.runStage("logits", func() stage.Stage { return p.batchStage(network.Logits) },
		stage.Tensors{tokensName: t})
}

// runStage runs a stage on the parameters and a batch, and downloads the output with that name.
func (e *Evaluator) runStage(
	name string, s func() stage.Stage, batch stage.Tensors,
) ([]float32, error) {
	exec, err := e.c.compileOnce(name, s)
	if err != nil {
		return nil, err
	}
	t := stage.Tensors{}
	if err := exec.Run(t, e.t, batch); err != nil {
		return nil, err
	}
	defer t[name].Finalize()
	return engine.Download[float32](t[name])
}

func (p *Plan) lossStage() stage.Stage { return p.batchStage(network.Losses) }

// batchStage computes an output of the model's program for a batch, under its name.
func (p *Plan) batchStage(output string) stage.Stage {
	of := p.batchProgram(false)
	p.addQuantizers(&of, p.Activations, false)
	of.Head.Logits = output == network.Logits
	s := p.modelStage(output, &of, append(p.forwardSpecs(false), p.tokenSpec()))
	s.Gathers = true
	return s
}

// modelStage returns the stage of a program of the model, with its outputs.
func (p *Plan) modelStage(name string, of *modelProgram, specs []engine.Spec) stage.Stage {
	return stage.Stage{Name: name, Inputs: specs, Calls: p.Model.Calls(of.Shape),
		Write: func(b *program.Builder, in stage.Values) stage.Values {
			p.widen(in)
			return p.inlineModel(b, of, in)
		}}
}

// Sequence provides the batches of an evaluation. It is used by one goroutine at a time.
type Sequence struct {
	Batches int64 // number of batches, the last of which may be incomplete
	Len     int   // number of elements in a batch
	// At fills dst with batch i. It returns the number of its valid rows, and of the targets in them.
	At func(i int64, dst []int32) (rows int, targets int64, err error)
	// Progress, unless nil, is called every ten seconds with the number of batches that are done, and
	// of all.
	Progress func(done, all int64)
}

const progressInterval = 10 * time.Second

// Mean is a mean loss over a number of targets.
type Mean struct {
	Loss    float64
	Targets int64
}

// Evaluate returns the mean losses, in nats per target, over the first n batches of the sequence
// for each n in batches (0: all); each batch is computed once. Quantizers stay active. For a
// problem without data, sequence is the zero value, the loss is computed once, and Targets is 0.
func Evaluate(
	ctx context.Context, c *Compiled, s *State, sequence Sequence, batches ...int,
) ([]Mean, error) {
	e, err := c.Evaluator(s)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	if sequence.At == nil { // a problem: its loss is computed without noise
		losses, err := e.Losses(make([]int32, c.plan.tokenSpec().Shape.Size()))
		if err != nil {
			return nil, err
		}
		return slices.Repeat([]Mean{{Loss: float64(losses[0])}}, len(batches)), nil
	}
	ends := make([]int64, len(batches))
	for i, n := range batches {
		ends[i] = sequence.Batches
		if n > 0 {
			ends[i] = min(ends[i], int64(n))
		}
	}
	means := slices.Repeat([]Mean{{Loss: math.NaN()}}, len(batches)) // without targets
	ids := make([]int32, sequence.Len)
	total, targets := 0.0, int64(0)
	reported, all := time.Now(), slices.Max(ends)
	for i := range all {
		if sequence.Progress != nil && time.Since(reported) > progressInterval {
			sequence.Progress(i, all)
			reported = time.Now()
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("evaluation: %w", ctx.Err())
		}
		rows, n, err := sequence.At(i, ids)
		if err != nil {
			return nil, err
		}
		losses, err := e.Losses(ids)
		if err != nil {
			return nil, err
		}
		for _, l := range losses[:rows*c.plan.Context] {
			total += float64(l)
		}
		targets += n
		for j, end := range ends {
			if i+1 == end {
				means[j] = Mean{total / float64(targets), targets}
			}
		}
	}
	return means, nil
}
