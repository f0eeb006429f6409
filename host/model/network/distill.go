package network

import (
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/sdk/program"
)

// Distillation is the loss of distilling a teacher into a model: the generalized Jensen-Shannon
// divergence (Agarwal et al., 2024, "On-policy distillation of language models", eq. 1) of the
// predictions for each token,
//
//	D(P, Q) = β·KL(P‖M) + (1−β)·KL(Q‖M),  M = β·P + (1−β)·Q,
//
// where P is the teacher's distribution and Q the model's, both from logits divided by the
// temperature. For β = 0 and β = 1, where this formula gives zero, the usual definitions hold:
// β = 0 is KL(P‖Q), and β = 1 is KL(Q‖P).
type Distillation struct {
	Beta        float64 // in [0, 1]
	Temperature float64 // above 0
	Weight      float64 // share of the divergence in the loss, in (0, 1]; the rest is cross-entropy
	// Squared multiplies the divergence by the square of the temperature, so that its gradients
	// have about the same size as at temperature 1 (Hinton et al., 2015, "Distilling the knowledge
	// in a neural network", section 2).
	Squared bool
}

// Scale is the factor of divergences.
func (d Distillation) Scale() float64 {
	if d.Squared {
		return d.Temperature * d.Temperature
	}
	return 1
}

// A Teacher is a model and how it is distilled into another one. The zero value is none. It reads
// the same batches, and its parameters are the inputs [TeacherParam].
type Teacher struct {
	Distillation
	Settings architecture.Settings
}

// Exists reports whether there is a teacher.
func (t Teacher) Exists() bool { return t.Weight > 0 }

// TeacherParam returns the name of a parameter of the teacher.
func TeacherParam(name string) string { return "teacher/" + name }

// Distilling is the setting of [SoftmaxDistillation].
type Distilling struct {
	Distillation
	Cap, TeacherCap float64 // of the logits; 0 for none
}

// teacher returns the network of a teacher; nil if there is none.
func (n *network) teacher(of Teacher) *network {
	if !of.Exists() {
		return nil
	}
	s := of.Settings
	s.FillIn()
	s.Context = n.Context
	t := network{Settings: s, Builder: n.Builder, batch: n.batch, params: map[string]value{},
		angles: n.angles, more: &results{}}
	for _, p := range s.Params() {
		t.params[p.Name] = n.Input(TeacherParam(p.Name), program.FloatType(p.Dims...))
	}
	return &t
}

// losses returns the losses, divergences and cross-entropies of each row of x, [N], with targets
// [N] and the teacher's hidden states and head.
func (d Distilling) losses(x, w, targets, teacherX, teacherW value) []value {
	return call(SoftmaxDistillation, d, "x w targets teacher_x teacher_w",
		"loss divergence cross_entropy",
		func(in []value) []value {
			logits, teacher := capped(linear(in[0], in[1]), d.Cap),
				capped(linear(in[3], in[4]), d.TeacherCap)
			loss, divergence, entropy := d.Losses(logits, teacher, in[2])
			return []value{loss, divergence, entropy}
		}, x, w, targets, teacherX, teacherW)
}

// Losses returns the loss, divergence and cross-entropy of each row of logits [N, vocabulary], [N],
// given those of the teacher and the targets [N].
func (d Distillation) Losses(logits, teacher, targets value) (loss, divergence, entropy value) {
	entropy = logProbability(logits, targets).Neg()
	p, q := logSoftmax(teacher.Scale(1/d.Temperature)), logSoftmax(logits.Scale(1/d.Temperature))
	divergence = d.divergence(p, q).Scale(d.Scale())
	if d.Weight == 1 {
		return divergence, divergence, entropy
	}
	loss = divergence.Scale(d.Weight).Add(entropy.Scale(1 - d.Weight))
	return loss, divergence, entropy
}

// divergence returns the divergence of each row, [N], from logarithms of the teacher's
// probabilities and of the model's.
func (d Distillation) divergence(p, q value) value {
	kl := func(p, m value) value { return p.Exp().Mul(p.Sub(m)).ReduceSum(1) }
	switch d.Beta {
	case 0:
		return kl(p, q)
	case 1:
		return kl(q, p)
	}
	most := p.Max(q).StopGradient()
	m := p.Sub(most).Exp().Scale(d.Beta).Add(q.Sub(most).Exp().Scale(1 - d.Beta)).Log().Add(most)
	return kl(p, m).Scale(d.Beta).Add(kl(q, m).Scale(1 - d.Beta))
}
