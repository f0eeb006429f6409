package step

import (
	"fmt"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/update"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/network"
)

// Scored is a batch of sequences, some of whose tokens are scored; see [model.Scored].
type Scored struct {
	Rows, Length    int
	Tokens          []int32 // [Rows, Length]
	Lengths         []int32 // [Rows]
	Places, Targets []int32
	// Positions and Parts, [Rows, Length], are set if each row holds a context and its continuations;
	// otherwise they are nil.
	Positions, Parts []int32
}

// Names of the inputs and outputs of scores.
const (
	lengthsName   = "lengths"
	positionsName = "positions"
	partsName     = "parts"
	placesName    = "places"
	targetsName   = "targets"
	logProbsName  = "log-probabilities"
	likeliestName = "likeliest"
)

// Scores returns the log-probability of each target, and whether it is the argmax at its position.
// If activations are quantized, the number of tokens must be one of the plan's [Plan.Pieces].
func (e *Evaluator) Scores(s Scored) (logProbs []float32, likeliest []bool, err error) {
	c := e.c
	p, tokens := c.evaluationPlan, s.Rows*s.Length
	language, ok := p.Model.(model.Language)
	if !ok {
		return nil, nil, fmt.Errorf("step: a model that reads no sequences cannot score them")
	}
	if err := p.checkPiece(tokens); err != nil {
		return nil, nil, err
	}
	shared := s.Parts != nil
	key := fmt.Sprintf("scores %d %d %d %t", s.Rows, s.Length, len(s.Places), shared)
	exec, err := c.compileOnce(key, func() update.Stage {
		ids := func(name string, dims ...int) engine.Spec {
			return engine.Spec{Name: name, Shape: shapes.Make(dtypes.Int32, dims...)}
		}
		n := len(s.Places)
		specs := append(p.forwardSpecs(false), ids(tokensName, s.Rows, s.Length),
			ids(lengthsName, s.Rows), ids(placesName, n), ids(targetsName, n))
		if shared {
			specs = append(specs, ids(positionsName, s.Rows, s.Length), ids(partsName, s.Rows, s.Length))
		}
		return update.Stage{Name: "scores", Inputs: specs, Build: func(in update.Nodes) update.Nodes {
			scored := model.Scored{Tokens: in[tokensName], Lengths: in[lengthsName],
				Indices: in[placesName], Targets: in[targetsName],
				Positions: in[positionsName], Parts: in[partsName]}
			weights := p.weightNodes(in, false)
			of := p.plannedModel(false)
			of.Shape = network.Shape{Task: network.Score, Batch: s.Rows, Context: s.Length, Targets: n,
				Parts: shared}
			for input, tensor := range map[string]string{network.Lengths: lengthsName,
				network.Indices: placesName, network.Targets: targetsName,
				network.Positions: positionsName, network.Parts: partsName} {
				of.tensors[input] = tensor
			}
			p.addQuantizers(&of, p.Pieces[tokens], false, c.dev, hasNode(in))
			if out, _, ok := language.Planned(of.withNodes(in), nil); ok {
				return update.Nodes{logProbsName: out[network.LogProbs],
					likeliestName: out[network.Likeliest]}
			}
			quantize := activationQuantizer(p.Pieces[tokens], in)
			logProbs, likeliest := language.Scores(weights, scored, quantize)
			return update.Nodes{logProbsName: logProbs, likeliestName: likeliest}
		}}
	})
	if err != nil {
		return nil, nil, err
	}
	t := update.Tensors{}
	defer finalize(t)
	for _, in := range []struct {
		name string
		data []int32
		dims []int
	}{
		{tokensName, s.Tokens, []int{s.Rows, s.Length}}, {lengthsName, s.Lengths, []int{s.Rows}},
		{placesName, s.Places, []int{len(s.Places)}}, {targetsName, s.Targets, []int{len(s.Targets)}},
		{positionsName, s.Positions, []int{s.Rows, s.Length}},
		{partsName, s.Parts, []int{s.Rows, s.Length}},
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
	if logProbs, err = engine.Download[float32](t[logProbsName]); err != nil {
		return nil, nil, err
	}
	likeliest, err = engine.Download[bool](t[likeliestName])
	return logProbs, likeliest, err
}
