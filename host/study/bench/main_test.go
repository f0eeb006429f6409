package bench_test

import (
	"testing"

	"github.com/cage-qat/cage/host/testing/testrun"
)

// TestMain runs the tests with shared plugins, and fails if a goroutine outlives them.
func TestMain(m *testing.M) { testrun.Main(m) }
