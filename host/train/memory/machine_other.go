//go:build !darwin

package memory

import "os"

// Machine returns how much more memory this process may take. Only Linux tells.
func Machine() (Available, bool) { return Of(os.DirFS("/")) }
