package faultfs

import "os"

// AllVariable is the environment variable that asks for complete sweeps; without it,
// tests that would take long try only a part.
const AllVariable = "CAGE_FAULTS"

// Sweep returns part, or whole if AllVariable is set to "all". It is for a number of
// seeds, or for the distance between the operations that are made to fail in turn.
func Sweep(part, whole int) int {
	if os.Getenv(AllVariable) == "all" {
		return whole
	}
	return part
}
