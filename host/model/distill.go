package model

import (
	"slices"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/support/exceptions"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model/network"
)

// Distillation says how a teacher is distilled into a model.
type Distillation = network.Distillation

// Distilled holds the mean losses of a batch in nats. As in [Model.Losses], each loss is multiplied
// by the weight of its target.
type Distilled struct {
	// Weight·divergence + (1−Weight)·cross-entropy; the only output with a gradient
	Loss         *graph.Node
	Divergence   *graph.Node
	CrossEntropy *graph.Node // of [Model.Losses]
}

// BatchLogits implements [Language].
func (m *transformer) BatchLogits(params []*graph.Node, batch *graph.Node,
	q ActivationQuantizer) *graph.Node {
	in, h := m.readHidden(params, batch, q)
	dims := in.tokens.Shape().Dimensions
	return graph.Reshape(m.head(params).linear(h), dims[0], dims[1]-1, m.Vocab)
}

// Distilled implements [Language].
func (m *transformer) Distilled(params []*graph.Node, batch, teacher *graph.Node,
	q ActivationQuantizer, d Distillation) Distilled {
	in, h := m.readHidden(params, batch, q)
	dims := in.tokens.Shape().Dimensions
	if want := []int{dims[0], dims[1] - 1, m.Vocab}; !slices.Equal(want, teacher.Shape().Dimensions) {
		exceptions.Panicf("%s: the teacher's logits are %s, want %v", m.Kind, teacher.Shape(), want)
	}
	head, targets := m.head(params), m.targets(in)
	teacher = graph.Reshape(teacher, -1, m.Vocab)
	mean := func(losses *graph.Node) *graph.Node {
		return graph.ReduceAllMean(m.weightLosses(graph.Reshape(losses, targets.Shape().Dim(0)), in))
	}
	divergences, crossEntropies := distillationLosses(d, head.linear(h), teacher, targets)
	return means(d, mean(divergences), mean(crossEntropies))
}

// means combines the mean losses.
func means(d Distillation, divergence, crossEntropy *graph.Node) Distilled {
	loss := divergence
	if d.Weight != 1 {
		loss = graph.Add(graph.MulScalar(divergence, d.Weight), graph.MulScalar(crossEntropy, 1-d.Weight))
	}
	return Distilled{loss, divergence, crossEntropy}
}

// distillationLosses computes the divergences and cross-entropies of rows of logits with graph
// operations.
func distillationLosses(d Distillation, logits, teacher, targets *graph.Node) (
	divergences, crossEntropies *graph.Node) {
	plain := newPredictions(logits, 1)
	scaled := plain
	if d.Temperature != 1 {
		scaled = newPredictions(logits, d.Temperature)
	}
	divergences = divergence(d, scaled, newPredictions(teacher, d.Temperature))
	return graph.MulScalar(divergences, d.Scale()), plain.crossEntropy(targets)
}

// divergence returns the divergence of each row, [tokens], with its gradient with respect to the
// model's logits only.
//
// With u = log P/M and r = log Q/M it is β·ΣP·u + (1−β)·ΣQ·r, and its derivative with
// respect to a logit is (1−β)·Q·(r − ΣQ·r), divided by the temperature. If M is P, as for
// β = 1, r is log Q/P and the factor is 1.
func divergence(d Distillation, model, teacher predictions) *graph.Node {
	logRatio := graph.Sub(graph.Sub(teacher.scaled, model.scaled),
		graph.Sub(teacher.logTotal, model.logTotal))
	if d.Beta == 0 {
		return engine.Custom(teacher.mean(logRatio), []*graph.Node{model.logits},
			func(dy *graph.Node) []*graph.Node {
				dy = graph.InsertAxes(graph.MulScalar(dy, 1/d.Temperature), -1)
				return []*graph.Node{graph.Mul(graph.Sub(model.probabilities(), teacher.probabilities()), dy)}
			})
	}
	factor := 1 - d.Beta
	if d.Beta == 1 {
		factor = 1
	}
	u, r := toMixture(d, logRatio)
	modelKL := model.mean(r) // KL(Q‖M)
	value := graph.Add(graph.MulScalar(teacher.mean(u), d.Beta), graph.MulScalar(modelKL, factor))
	return engine.Custom(value, []*graph.Node{model.logits}, func(dy *graph.Node) []*graph.Node {
		dy = graph.Div(graph.InsertAxes(graph.MulScalar(dy, factor/d.Temperature), -1), model.total)
		return []*graph.Node{graph.Mul(graph.Mul(model.exponentials,
			graph.Sub(r, graph.InsertAxes(modelKL, -1))), dy)}
	})
}

// toMixture returns u = log P/M and r = log Q/M, given log P/Q. M is computed relative to the
// larger of P and Q, which avoids overflow and cancellation: M/max(P, Q) is a mixture of 1 and of
// e^−|log P/Q|.
func toMixture(d Distillation, logRatio *graph.Node) (u, r *graph.Node) {
	if d.Beta == 1 {
		return graph.ZerosLike(logRatio), graph.Neg(logRatio)
	}
	smaller := graph.Exp(graph.Neg(graph.Abs(logRatio)))
	mix := func(larger float64) *graph.Node {
		return graph.AddScalar(graph.MulScalar(smaller, 1-larger), larger)
	}
	mixture := mix(d.Beta)
	if d.Beta != 0.5 {
		teacherLarger := graph.GreaterThan(logRatio, graph.ZerosLike(logRatio))
		mixture = graph.Where(teacherLarger, mixture, mix(1-d.Beta))
	}
	log := graph.Log(mixture)
	u, r = graph.MinScalar(logRatio, 0), graph.MaxScalar(logRatio, 0)
	return graph.Sub(u, log), graph.Neg(graph.Add(r, log))
}

// predictions holds distributions, [tokens, vocabulary]: the softmax of scaled logits.
type predictions struct {
	logits       *graph.Node // unscaled
	scaled       *graph.Node // divided by the temperature
	exponentials *graph.Node // of scaled, minus its row maximum
	total        *graph.Node // of the exponentials, [tokens, 1]
	logTotal     *graph.Node // log-sum-exp of scaled, [tokens, 1]
}

func newPredictions(logits *graph.Node, temperature float64) predictions {
	p := predictions{logits: logits, scaled: logits}
	if temperature != 1 {
		p.scaled = graph.MulScalar(logits, 1/temperature)
	}
	highest := graph.ReduceAndKeep(p.scaled, graph.ReduceMax, -1)
	p.exponentials = graph.Exp(graph.Sub(p.scaled, highest))
	p.total = graph.ReduceAndKeep(p.exponentials, graph.ReduceSum, -1)
	p.logTotal = graph.Add(graph.Log(p.total), highest)
	return p
}

func (p predictions) probabilities() *graph.Node { return graph.Div(p.exponentials, p.total) }

func (p predictions) mean(x *graph.Node) *graph.Node {
	sum := graph.ReduceAndKeep(graph.Mul(p.exponentials, x), graph.ReduceSum, -1)
	return graph.Squeeze(graph.Div(sum, p.total), -1)
}

// crossEntropy returns −log of the probability of the target in each row, [tokens], from unscaled
// logits.
func (p predictions) crossEntropy(targets *graph.Node) *graph.Node {
	targets = graph.InsertAxes(targets, -1)
	value := graph.Sub(graph.Squeeze(p.logTotal, -1), chosenLogits(p.logits, targets))
	return engine.Custom(value, []*graph.Node{p.logits}, func(dy *graph.Node) []*graph.Node {
		q := p.probabilities()
		q = graph.Where(isTarget(p.logits, targets), graph.AddScalar(q, -1), q)
		return []*graph.Node{graph.Mul(q, graph.InsertAxes(dy, -1))}
	})
}
