// Package cage implements the method of this project: curvature-aware gradient estimation
// (CAGE, MLSys 2026). To any quantization-aware training it adds a step along the
// quantization error e = x − Q(x), with a weight λ_t that ramps up late.
//
// The file algorithm.go is the paper's Algorithm 1, written so that the two can be read
// side by side. Each of the other files has one subject: the description of a step
// (rule.go), its program, with weight decay, the optimizer's gradient and the measures (step.go), the
// forms of the correction (correction.go), and LOTION, the method with which CAGE is
// compared (lotion.go).
//
// A step is written as a program (package program). The same text runs on the float64
// oracle in tests and is inlined into the compiled step in training. Nothing here knows a
// particular quantizer, optimizer, model or engine, and nothing here may import one.
package cage
