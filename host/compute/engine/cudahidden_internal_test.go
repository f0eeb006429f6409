//go:build cuda

package engine

import (
	"strings"
	"testing"
)

// TestHidden checks that a missing field is an error that names it. Tests of CUDA builds check the
// programs that XLA gets.
func TestHidden(t *testing.T) {
	err := catch(func() error { hidden(&struct{ other int }{}, "api"); return nil })
	if err == nil || !strings.Contains(err.Error(), "needs the field api of *struct") {
		t.Errorf("a field that is missing: %v", err)
	}
}
