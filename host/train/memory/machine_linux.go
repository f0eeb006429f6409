package memory

import "os"

// Machine returns how much more memory this process may take.
func Machine() (Available, bool) { return Of(os.DirFS("/")) }
