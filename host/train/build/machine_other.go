//go:build !darwin

package build

import "os"

// machineMemory returns how much more memory this process may take. Only Linux tells.
func machineMemory() (Available, bool) { return availableIn(os.DirFS("/")) }
