// Package lotion is LOTION ("Smoothing the Optimization Landscape for Quantized
// Training", Kwun et al. 2025, arXiv 2510.08757), the method that the CAGE paper
// compares itself with ("Relationship to LOTION", "Comparison to LOTION"): training
// in full precision on a loss that is smoothed by randomized rounding of the
// weights.
//
// To second order the smoothed loss is the loss plus a regularizer, the variance of
// the rounding weighted by the curvature. The room holds its value, its gradient and the
// moving average that stands for the curvature, in the form of the CAGE authors'
// re-implementation, written as programs like those of package cage. Nothing here
// knows a particular quantizer, optimizer, model or engine, and nothing here may
// import one.
package lotion
