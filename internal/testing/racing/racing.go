// Package racing reports whether the race detector is enabled. The detector needs additional
// memory, so tests that measure or limit memory are skipped if it is enabled. The package is for
// tests only.
package racing
