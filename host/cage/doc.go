// Package cage is the method: curvature-aware gradient estimation (CAGE, MLSys
// 2026), which adds to any quantization-aware training a step along the
// quantization error e = x − Q(x) with a weight λ_t that ramps up late.
//
// File algorithm.go is the paper's Algorithm 1 and reads beside it. The files around it
// hold one thing each: what describes a step (rule.go), the other corrections
// (correction.go), the gradient that the optimizer sees, weight decay, the error of the
// forward pass, the refusal of residuals that are not finite, the measures, and LOTION,
// the method that CAGE is compared with.
//
// A step is written as a program (package program), so that the same text runs on the
// float64 oracle in tests and is inlined into the compiled step in training. Nothing here
// knows a particular quantizer, optimizer, model or engine, and nothing here may import
// one.
package cage
