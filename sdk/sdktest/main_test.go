package sdktest_test

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain lets garbage grow: the oracle makes much of it, and next to nothing stays, so that the
// collector would take half of the time.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	os.Exit(m.Run())
}
