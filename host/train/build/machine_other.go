//go:build !darwin

package build

import "os"

// machineMemory returns the additional memory that this process may use; only Linux reports it.
func machineMemory() (Available, bool) { return availableIn(os.DirFS("/")) }
