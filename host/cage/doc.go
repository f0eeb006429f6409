// Package cage is the method: curvature-aware gradient estimation (CAGE, MLSys
// 2026), which adds to any quantization-aware training a step along the
// quantization error e = x − Q(x) with a weight λ_t that ramps up late.
//
// The room holds the two forms of the correction, the λ schedule and the
// stationarity measures, each a few lines to be read beside the paper. They are
// written as programs (package program), so that the same text runs on the
// float64 oracle in tests and is inlined into the compiled step in training.
// Nothing here knows a particular quantizer, optimizer, model or engine, and
// nothing here may import one.
package cage
