// Package testlevel determines how much the tests do. By default they try a sample of large sets:
// pairs of plugins, operations that fail, moments of a loss of power, random programs. With
// CAGE_TESTS=all (make exhaustive, make faults) they try the whole set, and in short mode (make
// quick) they skip slow tests.
package testlevel

import (
	"os"
	"testing"
)

// All reports whether all cases are requested.
func All() bool { return os.Getenv("CAGE_TESTS") == "all" }

// Choose returns part, or whole if all cases are requested.
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

// Long skips a test in short mode.
func Long(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes long: " + why)
	}
}
