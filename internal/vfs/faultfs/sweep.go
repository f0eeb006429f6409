package faultfs

import "os"

// AllVariable is the environment variable that asks for the whole of every sweep; without
// it, tests that would take long try a part.
const AllVariable = "CAGE_FAULTS"

// Sweep returns part, or whole when AllVariable is set to "all": a number of seeds, or
// the distance between the operations that are made to fail in turn.
func Sweep(part, whole int) int {
	if os.Getenv(AllVariable) == "all" {
		return whole
	}
	return part
}
