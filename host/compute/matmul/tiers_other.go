//go:build !amd64 || !goexperiment.simd

package matmul

// processorTiers lists the tiers besides the portable one, the fastest first.
func processorTiers() []*Tier { return nil }
