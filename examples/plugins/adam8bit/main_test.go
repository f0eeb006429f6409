package main

import (
	"testing"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/internal/testing/golden"
	"github.com/cage-qat/cage/sdk/sdktest"
)

func TestConformance(t *testing.T) {
	sdktest.Optimizer(t, adam8bit{}, plugintest.With(t, map[string]any{"min_size": 0})...)
}

// TestPublished compares with another implementation, which testdata/adam8bit.json names.
func TestPublished(t *testing.T) {
	plugintest.EachCase(t, "adam8bit",
		func(t *testing.T, m plugintest.Bench, c golden.Case) { m.Follow(t, adam8bit{}, c, 1e-5) })
}
