package plugin

import (
	"runtime"
	"testing"

	"github.com/cage-qat/cage/internal/effort"
	"github.com/cage-qat/cage/internal/racing"
	"github.com/cage-qat/cage/sdk"
)

// A plugin that eats memory ends with an error that names the limit; the host goes on.
func TestMemoryLimit(t *testing.T) {
	effort.Long(t, "fills memory")
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only on Linux")
	}
	if racing.Enabled {
		t.Skip("the race detector takes memory of its own")
	}
	c := start(t, "quantizer", sdk.KindQuantizer, Options{Memory: 512 << 20})
	_, err := c.Quantize(t.Context(), site("eat"))
	check(t, err, ErrShutdown, "out of memory", "it may use 512 MiB of memory (CAGE_PLUGIN_MEMORY=1024M allows twice as much)")
}

func TestMemoryVariable(t *testing.T) {
	for text, want := range map[string]uint64{"268435456": 256 << 20, "300M": 300 << 20, "4G": 4 << 30, "1T": 1 << 40, "524288K": 512 << 20} {
		t.Setenv(MemoryVariable, text)
		if got, err := memoryLimit(0); err != nil || got != want {
			t.Errorf("%s: got %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"lots", "1M", "-1", "4g", "4GB", "M", "99999999999T"} {
		t.Setenv(MemoryVariable, text)
		_, err := Start(t.Context(), link(t, "quantizer"), sdk.KindQuantizer, Options{})
		check(t, err, ErrStart, "CAGE_PLUGIN_MEMORY is", "want a size of at least 256M, such as 8G")
	}
	t.Setenv(MemoryVariable, "")
	if got, err := memoryLimit(0); err != nil || got < leastMemory || runtime.GOOS == "linux" && got != max(machineMemory()/2, leastMemory) {
		t.Errorf("by default: %d, %v", got, err)
	}
	if got, err := memoryLimit(1 << 30); err != nil || got != 1<<30 {
		t.Errorf("given: %d, %v", got, err)
	}
}
