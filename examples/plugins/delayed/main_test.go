package main

import (
	"testing"

	"github.com/cage-qat/cage/sdk/sdktest"
	"github.com/cage-qat/cage/tools/plugintest"
)

func TestConformance(t *testing.T) {
	sdktest.Quantizer(t, delayed{}, plugintest.With(t, nil)...)
}
