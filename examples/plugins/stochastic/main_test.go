package main

import (
	"testing"

	"github.com/cage-qat/cage/sdk/sdktest"
	"github.com/cage-qat/cage/tools/plugintest"
)

func TestConformance(t *testing.T) {
	claims := sdktest.Traits{AnyRounding: true, Unbiased: true, Idempotent: true}
	sdktest.Quantizer(t, stochastic{}, plugintest.With(t, nil, sdktest.Claim(claims))...)
}
