package main

import (
	"testing"

	"github.com/cage-qat/cage/internal/plugintest"
	"github.com/cage-qat/cage/sdk"
)

// matrix is a tensor to train.
func matrix(name string, shape ...int) sdk.Tensor {
	return sdk.Tensor{Name: name, Role: sdk.TensorMatrix, Shape: shape}
}

func TestProperties(t *testing.T) {
	for _, tensor := range []sdk.Tensor{matrix("w", 4, 6), matrix("w", 6, 4), matrix("w", 1, 5), matrix("attn.qkv", 12, 4)} {
		plugintest.OptimizerProperties(t, muon{}, nil, tensor, 1e-5)
	}
	plugintest.OptimizerProperties(t, muon{}, map[string]any{"momentum": 0.0}, matrix("w", 4, 6), 1e-5)
}

func TestDescends(t *testing.T) {
	for _, tensor := range []sdk.Tensor{matrix("w", 4, 6), matrix("attn.qkv", 12, 4)} {
		plugintest.Descends(t, muon{}, nil, tensor, plugintest.Parabola(), 0.5, 300, 1e-3)
		plugintest.Descends(t, muon{}, nil, tensor, plugintest.Rosenbrock(), 0.25, 300, 1e-2)
	}
}
