// Package testlevel says how much the tests do. Usually they try a sample of what comes in
// hundreds: pairs of plugins, operations that fail, moments of a loss of power, random
// programs. With CAGE_TESTS=all (make exhaustive, make faults) they try all of it, and in
// short mode (make quick) they leave out what takes long.
package testlevel

import (
	"os"
	"testing"
)

// All reports whether everything is asked for.
func All() bool { return os.Getenv("CAGE_TESTS") == "all" }

// Choose returns part, or whole if everything is asked for.
func Choose[T any](part, whole T) T {
	if All() {
		return whole
	}
	return part
}

// Sample returns short in short mode, and otherwise what [Choose] chooses.
func Sample[T any](short, part, whole T) T {
	if testing.Short() {
		return short
	}
	return Choose(part, whole)
}

// Long skips a test in short mode.
func Long(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes long: " + why)
	}
}
