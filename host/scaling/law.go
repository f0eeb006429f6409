// Package scaling fits the precision scaling law
//
//	L(N, D, P) = A/(N·eff(P))^α + B/D^β + E
//
// (CAGE paper, "Precision Scaling Law"; after QuEST, Panferov et al. 2025, and Hoffmann
// et al. 2022) to final validation losses. N counts the parameters outside the embeddings,
// D the tokens seen, and eff(P) says what fraction of its parameters a model quantized by
// one method at P bits is worth; A, α, B, β and E are shared by all methods.
//
// Here live the points and how they are read (run directories, CSV, JSON), the fit, what
// the points cannot tell apart, bootstrap intervals, tables and figures. Pictures are drawn
// by host/figure; running the trainings is the business of host/study.
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

// QuEST is the fit that was published with QuEST (Panferov et al. 2025) for Llama-style
// models of 30M to 800M parameters on C4, with 25, 50 and 100 tokens per parameter.
var QuEST = Law{A: 8.134031011055859, Alpha: 0.062726522, B: 86.41190623830154, Beta: 0.241288351, E: 0.0014232897805828435}

// Loss is the loss that the law expects of n parameters with parameter efficiency eff
// after d tokens.
func (l Law) Loss(n, d, eff float64) float64 {
	return l.A/math.Pow(n*eff, l.Alpha) + l.B/math.Pow(d, l.Beta) + l.E
}

// Invert is the parameter efficiency that explains one loss beside the loss of the
// reference at equal N and D:
//
//	eff = (1 + (N^α/A)·(L − L_ref))^(−1/α)
//
// It needs only A and α: what the law gets wrong about the reference cancels. It is +Inf
// when the loss is so far below the reference's that no number of parameters explains it.
func (l Law) Invert(n, loss, reference float64) float64 {
	x := 1 + math.Pow(n, l.Alpha)/l.A*(loss-reference)
	if x <= 0 {
		return math.Inf(1)
	}
	return math.Pow(x, -1/l.Alpha)
}

// Normalized is the parameter efficiency per bit relative to 16 bits, eff·16/P: above 1
// where a byte of quantized weights is worth more than a byte of 16-bit weights.
func Normalized(eff, bits float64) float64 { return eff * 16 / bits }

// Bytes is the size of n parameters of so many bits.
func Bytes(n, bits float64) float64 { return n * bits / 8 }
