//go:build !goexperiment.simd || !amd64

package main

// step computes a step.
func (f factors) step(g, m, v, nextM, nextV, u []float32) { f.scalar(g, m, v, nextM, nextV, u) }
