package bench_test

import (
	"testing"

	"github.com/cage-qat/cage/internal/testing/testrun"
)

// TestMain lets the tests share plugins, and fails when a goroutine outlives them.
func TestMain(m *testing.M) { testrun.Main(m) }
