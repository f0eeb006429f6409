//go:build amd64 && goexperiment.simd && !linux

package matmul

// mayUseTiles returns false, as only Linux's way to ask for AMX tiles is implemented.
func mayUseTiles() bool { return false }
