package main

import (
	"testing"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/internal/testing/golden"
	"github.com/cage-qat/cage/sdk/sdktest"
)

func TestConformance(t *testing.T) {
	sdktest.Optimizer(t, mars{}, plugintest.With(t, nil)...)
}

// TestPublished compares with another implementation, which testdata/mars.json names.
func TestPublished(t *testing.T) {
	plugintest.EachCase(t, "mars",
		func(t *testing.T, m plugintest.Bench, c golden.Case) { m.Follow(t, mars{}, c, 1e-5) })
}
