package main

import (
	"testing"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/internal/testing/golden"
	"github.com/cage-qat/cage/sdk/sdktest"
)

func TestConformance(t *testing.T) {
	sdktest.Optimizer(t, adamw{}, plugintest.With(t, nil)...)
}

// TestPublished compares with another implementation, which testdata/adamw-bf16.json names. The
// host rounds weights, so they are not rounded here.
func TestPublished(t *testing.T) {
	plugintest.EachCase(t, "adamw-bf16",
		func(t *testing.T, m plugintest.Bench, c golden.Case) { m.Follow(t, adamw{}, c, 1e-5) })
}
