package engine_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
)

// TestAttentionOption: an unknown way is refused, and none is the automatic one.
func TestAttentionOption(t *testing.T) {
	if _, err := engine.Open(device.CPU, engine.Options{Attention: "flash"}); err == nil || !strings.Contains(err.Error(), `attention "flash"`) {
		t.Errorf("got error %v", err)
	}
	d, err := engine.Open(device.CPU, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if got := d.Attention(); got != device.AutoAttention {
		t.Errorf("attention is %q, want %q", got, device.AutoAttention)
	}
	d.Warn("nobody listens")
}

// TestOnce: what is found out about a device is found out once for each key, and the opener of the device is told.
func TestOnce(t *testing.T) {
	var heard []string
	d, err := engine.Open(device.CPU, engine.Options{Warn: func(message string, _ ...any) { heard = append(heard, message) }})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	type key int
	find := func() any {
		d.Warn("looking")
		return len(heard)
	}
	got := []any{d.Once(key(1), find), d.Once(key(1), find), d.Once(key(2), find), d.Once(1, find)}
	if !slices.Equal(got, []any{1, 1, 2, 3}) || len(heard) != 3 {
		t.Errorf("found %v with %d messages", got, len(heard))
	}
}
