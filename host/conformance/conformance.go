// Package conformance lets the conformance kit (package sdktest) test what a host has:
// plugins that run as processes, and devices. It holds no check of its own.
package conformance

import (
	"context"

	"github.com/cage-qat/cage/host/plugin"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/sdktest"
)

// Quantizer is the subject for a running quantizer. Cancelling ctx fails what is
// asked afterwards.
func Quantizer(ctx context.Context, c *plugin.Client) sdktest.QuantizerSubject {
	return sdktest.QuantizerSubject{
		Describe: func() (sdk.Description, error) { return c.Description(), nil },
		Programs: func(site sdk.Site) (sdk.QuantizerProgram, error) {
			return c.Quantize(ctx, site)
		},
	}
}

// Optimizer is the subject for a running optimizer.
func Optimizer(ctx context.Context, c *plugin.Client) sdktest.OptimizerSubject {
	return sdktest.OptimizerSubject{
		Describe: func() (sdk.Description, error) { return c.Description(), nil },
		Programs: func(tensor sdk.Tensor) (sdk.OptimizerProgram, error) {
			return c.Program(ctx, tensor)
		},
	}
}
