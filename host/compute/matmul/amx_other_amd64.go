//go:build amd64 && goexperiment.simd && !linux

package matmul

// mayUseTiles returns false, because the request for AMX tiles is implemented only for Linux.
func mayUseTiles() bool { return false }
