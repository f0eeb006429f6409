// Package racing tells tests whether the race detector is on. It takes memory of its own, so
// that tests which measure or bound memory skip themselves then; nothing else may depend on
// it.
package racing
