// Package testdistill computes divergences of distillation by their definition, in float64.
package testdistill

import (
	"math"

	"github.com/cage-qat/cage/host/model/network"
)

// Softmax returns softmax(logits/temperature).
func Softmax(logits []float64, temperature float64) []float64 {
	highest, total := math.Inf(-1), 0.0
	for _, x := range logits {
		highest = max(highest, x)
	}
	out := make([]float64, len(logits))
	for i, x := range logits {
		out[i] = math.Exp((x - highest) / temperature)
		total += out[i]
	}
	for i := range out {
		out[i] /= total
	}
	return out
}

func kl(p, q []float64) float64 {
	sum := 0.0
	for i := range p {
		if p[i] > 1e-300 { // so that p[i]/2 is also above 0
			sum += p[i] * math.Log(p[i]/q[i])
		}
	}
	return sum
}

// Divergence returns the divergence by its definition, in float64.
func Divergence(d network.Distillation, logits, teacher []float64) float64 {
	p, q := Softmax(teacher, d.Temperature), Softmax(logits, d.Temperature)
	switch d.Beta {
	case 0:
		return kl(p, q)
	case 1:
		return kl(q, p)
	}
	mixture := make([]float64, len(p))
	for i := range p {
		mixture[i] = d.Beta*p[i] + (1-d.Beta)*q[i]
	}
	return d.Beta*kl(p, mixture) + (1-d.Beta)*kl(q, mixture)
}

// Slopes returns fourth-order finite differences of the divergence with respect to the logits.
func Slopes(d network.Distillation, logits, teacher []float64) []float64 {
	const h = 1e-3
	out := make([]float64, len(logits))
	at := func(i int, by float64) float64 {
		moved := append([]float64(nil), logits...)
		moved[i] += by
		return Divergence(d, moved, teacher)
	}
	for i := range out {
		out[i] = (8*(at(i, h)-at(i, -h)) - (at(i, 2*h) - at(i, -2*h))) / (12 * h)
	}
	return out
}
