package serve

import "time"

// Browser tests need not wait for a list of runs to age.
func init() { listedFor = 20 * time.Millisecond }
