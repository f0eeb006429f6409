// Package testlevel determines how thorough tests are. By default, they sample large sets of cases:
// pairs of plugins, failing operations, moments of a power failure, random programs. With
// CAGE_TESTS=all (make exhaustive, make faults) they run all cases. In short mode (make quick) they
// skip slow tests.
package testlevel

import (
	"os"
	"testing"
)

// All reports whether tests should run all cases.
func All() bool { return os.Getenv("CAGE_TESTS") == "all" }

// Choose returns whole if tests should run all cases, and part otherwise.
func Choose[T any](part, whole T) T {
	if All() {
		return whole
	}
	return part
}

// Sample returns short in short mode, and otherwise the result of [Choose].
func Sample[T any](short, part, whole T) T {
	if testing.Short() {
		return short
	}
	return Choose(part, whole)
}

// Long skips a slow test in short mode.
func Long(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes long: " + why)
	}
}
