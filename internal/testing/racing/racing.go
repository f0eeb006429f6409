// Package racing tells tests whether the race detector is on. The detector needs additional memory,
// so tests that measure or limit memory skip themselves when it is on. Only tests may depend on
// this package.
package racing
