package main

import (
	"testing"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/sdktest"
)

// TestConformance also compares with values of testdata/awq.py, an independent implementation.
func TestConformance(t *testing.T) {
	sdktest.Quantizer(t, awq{}, plugintest.With(t, nil, sdktest.GoldenFile(t, "testdata/awq.json"))...)
}

// TestAxes checks that a weight may have one or several axes.
func TestAxes(t *testing.T) {
	values, err := awq{}.Describe().Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, shape := range [][]int{{64}, {2, 3, 64}} {
		if _, err := sdk.BuildQuantizer(awq{}, sdk.Site{Role: sdk.RoleWeight, Name: "w", Shape: shape,
			Values: values}); err != nil {
			t.Error(err)
		}
	}
}
