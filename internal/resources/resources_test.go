package resources_test

import (
	"os"
	"testing"

	"github.com/cage-qat/cage/internal/resources"
)

// TestMemory checks that written memory counts in the current and the peak size.
func TestMemory(t *testing.T) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("the system does not tell")
	}
	before := resources.Memory()
	block := make([]byte, 64<<20)
	for i := 0; i < len(block); i += 4096 {
		block[i] = 1
	}
	now, peak := resources.Memory(), resources.PeakMemory()
	if now-before < 32<<20 || peak < now-(8<<20) {
		t.Errorf("with %d bytes more: %d before, %d now, peak %d", len(block), before, now, peak)
	}
	if block[4096] != 1 || resources.ProcessorTime() <= 0 {
		t.Error("no processor time")
	}
}
