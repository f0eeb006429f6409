//go:build !linux

package plugin

// machineMemory is not known here.
func machineMemory() uint64 { return 0 }
