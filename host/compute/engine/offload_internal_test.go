package engine

import "testing"

// TestOffloadFlags: XLA's second scheduler is turned off where states are offloaded and nobody says otherwise.
func TestOffloadFlags(t *testing.T) {
	const on = "--xla_gpu_enable_latency_hiding_scheduler=true"
	for _, c := range []struct {
		flags   string
		offload bool
		want    string
	}{
		{"", false, ""},
		{"", true, offloadFlag},
		{"--other=1", true, "--other=1 " + offloadFlag},
		{on, true, on},
	} {
		if got := offloadFlags(c.flags, c.offload); got != c.want {
			t.Errorf("flags %q, offload %t: %q, want %q", c.flags, c.offload, got, c.want)
		}
	}
}
