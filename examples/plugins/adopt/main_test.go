package main

import (
	"testing"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/internal/testing/golden"
	"github.com/cage-qat/cage/sdk/sdktest"
)

func TestConformance(t *testing.T) {
	sdktest.Optimizer(t, adopt{}, plugintest.With(t, nil)...)
}

// TestPublished compares with another implementation, which testdata/adopt.json names.
func TestPublished(t *testing.T) {
	plugintest.EachCase(t, "adopt",
		func(t *testing.T, m plugintest.Bench, c golden.Case) { m.Follow(t, adopt{}, c, 1e-5) })
}
