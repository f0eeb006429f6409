//go:build amd64 && goexperiment.simd && !linux

package matmul

// mayUseTiles: other systems than Linux have other ways to ask for the tiles of AMX.
func mayUseTiles() bool { return false }
