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
