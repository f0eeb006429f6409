package quantize_test

import (
	"testing"

	"github.com/cage-qat/cage/host/internal/testrun"
)

func TestMain(m *testing.M) { testrun.Main(m) }
