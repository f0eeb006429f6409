package main

import (
	"testing"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/sdk/sdktest"
)

// TestConformance also compares with values of the authors' code; see testdata/outcontrol.py.
func TestConformance(t *testing.T) {
	sdktest.Quantizer(t, outcontrol{},
		plugintest.With(t, nil, sdktest.GoldenFile(t, "testdata/outcontrol.json"))...)
}
