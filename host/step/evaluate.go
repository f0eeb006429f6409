package step

import (
	"github.com/cage-qat/cage/host/engine"
)

// Evaluator computes losses with fixed parameters. The weights are quantized once,
// when it is made; the quantizers are those of training.
type Evaluator struct {
	k *Kernels
	q *quantizedWeights
	w []*engine.Buffer // weights as they are used, and activations' trained parameters
}

// Evaluator prepares the evaluation of s, which must stay unchanged until Close.
func (k *Kernels) Evaluator(s *State) (*Evaluator, error) {
	q, err := k.runQuantize(s)
	if err != nil {
		return nil, err
	}
	return &Evaluator{k, q, k.forward(s, q)}, nil
}

// Close frees the quantized weights.
func (e *Evaluator) Close() { e.q.close() }

// Losses returns the losses of a batch: of a language model that of every token of
// [batch, context+1], row by row, in nats.
func (e *Evaluator) Losses(tokens []int32) ([]float32, error) {
	p := &e.k.plan
	return e.run("losses", p.lossGraph, tokens, p.batchDims()...)
}

// Logits returns the logits of the token that follows each position of a batch
// [batch, context], flat [batch, context, vocabulary]. The model must be a language
// model.
func (e *Evaluator) Logits(tokens []int32) ([]float32, error) {
	p := &e.k.plan
	return e.run("logits", p.logitsGraph, tokens, p.Batch, p.Context)
}

func (e *Evaluator) run(name string, graph func() ([]engine.Spec, engine.BuildFunc), tokens []int32, dims ...int) ([]float32, error) {
	exec, err := e.k.once(name, graph)
	if err != nil {
		return nil, err
	}
	t, err := engine.Upload(e.k.dev, tokens, dims...)
	if err != nil {
		return nil, err
	}
	defer t.Finalize()
	out, err := exec.Run(append(append([]*engine.Buffer(nil), e.w...), t), nil)
	if err != nil {
		return nil, err
	}
	defer engine.FinalizeAll(out...)
	return engine.Download[float32](out[0])
}
