package step

import (
	"maps"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/support/exceptions"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/update"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/decode"
)

// Evaluator computes losses with fixed parameters. The weights are quantized once, when
// it is created, by the quantizers used in training.
type Evaluator struct {
	c *Compiled
	s *State
	t update.Tensors // those of the state, and the quantized weights

	network *decode.Network // nil until a decoder reads a single token
}

// Evaluator prepares the evaluation of s, which must stay unchanged until Close.
func (c *Compiled) Evaluator(s *State) (*Evaluator, error) {
	e := &Evaluator{c: c, s: s, t: maps.Clone(s.Tensors)}
	if err := c.runQuantize(e.t); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// Close frees the quantized weights.
func (e *Evaluator) Close() { keepState(e.s.Tensors, e.t) }

// Losses returns the losses of a batch of all replicas together; for a language model,
// the loss of every token of [batch, context+1], row by row, in nats.
func (e *Evaluator) Losses(tokens []int32) ([]float32, error) {
	t, err := e.c.uploadBatch(tokens)
	if err != nil {
		return nil, err
	}
	defer t.Finalize()
	numbers := make([]int32, e.c.dev.Count())
	for i := range numbers {
		numbers[i] = int32(i)
	}
	n, err := engine.UploadSharded(e.c.dev, numbers, len(numbers))
	if err != nil {
		return nil, err
	}
	defer n.Finalize()
	return e.run("losses", e.c.plan.lossStage, update.Tensors{tokensName: t, replicaName: n})
}

// Logits returns the logits of the token that follows each position of a batch [batch,
// context], as flat [batch, context, vocabulary]. All replicas compute the same logits.
// The model must be a language model.
func (e *Evaluator) Logits(tokens []int32) ([]float32, error) {
	p := &e.c.plan
	t, err := engine.Upload(e.c.dev, tokens, p.Batch, p.Context)
	if err != nil {
		return nil, err
	}
	defer t.Finalize()
	return e.run("logits", p.logitsStage, update.Tensors{tokensName: t})
}

// run downloads the output of a stage that has its name.
func (e *Evaluator) run(name string, s func() stage, batch update.Tensors) ([]float32, error) {
	exec, err := e.c.once(name, s)
	if err != nil {
		return nil, err
	}
	t := maps.Clone(e.t)
	maps.Copy(t, batch)
	if err := exec.run(t); err != nil {
		return nil, err
	}
	defer t[name].Finalize()
	return engine.Download[float32](t[name])
}

// lossStage maps what the forward pass reads, tokens and the number of each replica to
// the loss of every token of all replicas.
func (p *Plan) lossStage() stage {
	specs := append(p.forwardSpecs(false), p.tokenSpec(), replicaSpec)
	return stage{"losses", specs, func(_ *graph.Graph, in update.Nodes) update.Nodes {
		losses := p.Model.Losses(p.weightNodes(in, false), in[tokensName], p.activations(in))
		return update.Nodes{"losses": gatherReplicas(losses, in[replicaName])}
	}}
}

// logitsStage maps what the forward pass reads and tokens [batch, context] to logits.
func (p *Plan) logitsStage() stage {
	tokens := engine.Spec{Name: tokensName, Shape: shapes.Make(dtypes.Int32, p.Batch, p.Context)}
	return stage{"logits", append(p.forwardSpecs(false), tokens), func(_ *graph.Graph, in update.Nodes) update.Nodes {
		language, ok := p.Model.(model.Language)
		if !ok {
			exceptions.Panicf("the model does not predict tokens")
		}
		return update.Nodes{"logits": language.Logits(p.weightNodes(in, false), in[tokensName], p.activations(in))}
	}}
}
