package pytorch

import (
	"testing"

	"github.com/cage-qat/cage/internal/testing/testrun"
)

func TestMain(m *testing.M) { testrun.Main(m) }
