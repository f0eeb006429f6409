//go:build !linux

package plugin

import "math"

func machineMemory() uint64 { return 0 }

func hardLimit() uint64 { return math.MaxUint64 }
