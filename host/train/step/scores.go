package step

import (
	"fmt"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/network"
)

// Scored is a batch of sequences, some of whose tokens are scored; see [network.Score].
type Scored struct {
	Rows, Length    int
	Tokens          []int32 // [Rows, Length]
	Lengths         []int32 // [Rows]
	Places, Targets []int32
	// Positions and Parts, [Rows, Length], are set if each row holds a context and its continuations;
	// otherwise they are nil.
	Positions, Parts []int32
}

// Scores returns the log-probability of each target, and whether it is the argmax at its position.
// If activations are quantized, the number of tokens must be one of the plan's [Plan.Pieces].
func (e *Evaluator) Scores(s Scored) (logProbs []float32, likeliest []bool, err error) {
	c := e.c
	p, tokens := c.evaluationPlan, s.Rows*s.Length
	if _, ok := p.Model.(model.Language); !ok {
		return nil, nil, fmt.Errorf("step: a model that reads no sequences cannot score them")
	}
	if err := p.checkPiece(tokens); err != nil {
		return nil, nil, err
	}
	shared := s.Parts != nil
	key := fmt.Sprintf("scores %d %d %d %t", s.Rows, s.Length, len(s.Places), shared)
	exec, err := c.compileOnce(key, func() stage.Stage {
		ids := func(name string, dims ...int) engine.Spec {
			return engine.Spec{Name: name, Shape: shapes.Make(shapes.Int32, dims...)}
		}
		n := len(s.Places)
		specs := append(p.forwardSpecs(false), ids(network.Tokens, s.Rows, s.Length),
			ids(network.Lengths, s.Rows), ids(network.Indices, n), ids(network.Targets, n))
		if shared {
			specs = append(specs, ids(network.Positions, s.Rows, s.Length),
				ids(network.Parts, s.Rows, s.Length))
		}
		of := p.batchProgram(false)
		of.Shape = network.Shape{Task: network.Score, Batch: s.Rows, Context: s.Length, Targets: n,
			Parts: shared}
		p.addQuantizers(&of, p.Pieces[tokens], false)
		return p.modelStage("scores", &of, specs)
	})
	if err != nil {
		return nil, nil, err
	}
	t := stage.Tensors{}
	defer t.Finalize()
	for _, in := range []struct {
		name string
		data []int32
		dims []int
	}{
		{network.Tokens, s.Tokens, []int{s.Rows, s.Length}}, {network.Lengths, s.Lengths, []int{s.Rows}},
		{network.Indices, s.Places, []int{len(s.Places)}},
		{network.Targets, s.Targets, []int{len(s.Targets)}},
		{network.Positions, s.Positions, []int{s.Rows, s.Length}},
		{network.Parts, s.Parts, []int{s.Rows, s.Length}},
	} {
		if in.data == nil { // without a shared context there are no positions or parts
			continue
		}
		if t[in.name], err = engine.Upload(c.dev, in.data, in.dims...); err != nil {
			return nil, nil, err
		}
	}
	if err := exec.Run(t, e.t); err != nil {
		return nil, nil, err
	}
	if logProbs, err = engine.Download[float32](t[network.LogProbs]); err != nil {
		return nil, nil, err
	}
	likeliest, err = engine.Download[bool](t[network.Likeliest])
	return logProbs, likeliest, err
}
