package memory

import "os"

// Machine is what this process may still take.
func Machine() (Available, bool) { return Of(os.DirFS("/")) }
