//go:build !goexperiment.simd

package loops

var turn = plainTurn
