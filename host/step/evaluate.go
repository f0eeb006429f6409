package step

import (
	"slices"

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

// Losses returns the losses of a batch of all replicas together: of a language model
// that of every token of [batch, context+1], row by row, in nats.
func (e *Evaluator) Losses(tokens []int32) ([]float32, error) {
	t, err := e.k.uploadBatch(tokens)
	if err != nil {
		return nil, err
	}
	defer t.Finalize()
	numbers := make([]int32, e.k.dev.Count())
	for i := range numbers {
		numbers[i] = int32(i)
	}
	n, err := engine.UploadSharded(e.k.dev, numbers, len(numbers))
	if err != nil {
		return nil, err
	}
	defer n.Finalize()
	return e.run("losses", e.k.plan.lossGraph, t, n)
}

// Logits returns the logits of the token that follows each position of a batch
// [batch, context], flat [batch, context, vocabulary], which all replicas compute alike.
// The model must be a language model.
func (e *Evaluator) Logits(tokens []int32) ([]float32, error) {
	p := &e.k.plan
	t, err := engine.Upload(e.k.dev, tokens, p.Batch, p.Context)
	if err != nil {
		return nil, err
	}
	defer t.Finalize()
	return e.run("logits", p.logitsGraph, t)
}

func (e *Evaluator) run(name string, graph func() ([]engine.Spec, engine.BuildFunc), batch ...*engine.Buffer) ([]float32, error) {
	exec, err := e.k.once(name, graph)
	if err != nil {
		return nil, err
	}
	out, err := exec.Run(slices.Concat(e.w, batch), nil)
	if err != nil {
		return nil, err
	}
	defer engine.FinalizeAll(out...)
	return engine.Download[float32](out[0])
}
