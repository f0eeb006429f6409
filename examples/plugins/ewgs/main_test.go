package main

import (
	"testing"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/sdk/sdktest"
)

// TestConformance also compares with values of testdata/ewgs.py, an independent implementation.
func TestConformance(t *testing.T) {
	sdktest.Quantizer(t, ewgs{},
		plugintest.With(t, nil, sdktest.GoldenFile(t, "testdata/ewgs.json"))...)
}
