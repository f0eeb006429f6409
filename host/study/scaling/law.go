// Package scaling fits the precision scaling law
//
//	L(N, D, P) = A/(N·eff(P))^α + B/D^β + E
//
// (CAGE paper, "Precision Scaling Law"; after QuEST, Panferov et al. 2025, and Hoffmann
// et al. 2022) to final validation losses. N counts the parameters outside the embeddings
// and D the tokens seen. eff(P) says what fraction of its parameters a model is worth
// that was quantized by one method at P bits. A, α, B, β and E are shared by all methods.
//
// The package contains the points and their readers (run directories, CSV, JSON), the
// fit, warnings about what the points cannot determine, bootstrap intervals, tables and
// figures. host/study/figure draws the pictures; host/study runs the trainings.
package scaling

import "math"

// Law holds the parameters that all methods share. Losses are in nats per token.
type Law struct {
	A     float64 `json:"a"`
	Alpha float64 `json:"alpha"`
	B     float64 `json:"b"`
	Beta  float64 `json:"beta"`
	E     float64 `json:"e"`
}

// QuEST is the fit published with QuEST (Panferov et al. 2025) for Llama-style models of
// 30M to 800M parameters on C4, with 25, 50 and 100 tokens per parameter.
var QuEST = Law{A: 8.134031011055859, Alpha: 0.062726522, B: 86.41190623830154, Beta: 0.241288351, E: 0.0014232897805828435}

// Loss returns the loss that the law predicts for n parameters with parameter efficiency
// eff after d tokens.
func (l Law) Loss(n, d, eff float64) float64 {
	return l.A/math.Pow(n*eff, l.Alpha) + l.B/math.Pow(d, l.Beta) + l.E
}

// Invert returns the parameter efficiency that explains one loss, given the loss of the
// reference at equal N and D:
//
//	eff = (1 + (N^α/A)·(L − L_ref))^(−1/α)
//
// It needs only A and α: errors of the law that the reference shares cancel. It is +Inf
// if the loss is so far below the reference's that no number of parameters explains it.
func (l Law) Invert(n, loss, reference float64) float64 {
	x := 1 + math.Pow(n, l.Alpha)/l.A*(loss-reference)
	if x <= 0 {
		return math.Inf(1)
	}
	return math.Pow(x, -1/l.Alpha)
}

// Normalized returns the parameter efficiency per bit relative to 16 bits, eff·16/P. It
// is above 1 if a byte of quantized weights is worth more than a byte of 16-bit weights.
func Normalized(eff, bits float64) float64 { return eff * 16 / bits }

// Bytes returns the size of n parameters with the given number of bits each.
func Bytes(n, bits float64) float64 { return n * bits / 8 }
