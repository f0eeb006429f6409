//go:build !amd64 || !goexperiment.simd

package loops

func bits256([]uint32, [2]uint32, uint32) int { panic("threefry: no AVX2") }
