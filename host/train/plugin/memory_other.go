//go:build !linux

package plugin

import "math"

// machineMemory is not known here.
func machineMemory() uint64 { return 0 }

// hardLimit: there is none here, as no limit is set.
func hardLimit() uint64 { return math.MaxUint64 }
