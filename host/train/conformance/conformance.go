// Package conformance lets the conformance kit (package sdktest) check plugin processes and devices
// of a host. It contains no checks of its own.
package conformance

import (
	"context"
	"slices"

	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/sdktest"
	"github.com/cage-qat/cage/sdk/spec"
)

// Quantizer returns a test subject for a running quantizer. When ctx is cancelled, the processes of
// its searches are closed.
func Quantizer(ctx context.Context, c *plugin.Client) sdktest.QuantizerSubject {
	s := &process[*plugin.Searcher]{client: c}
	context.AfterFunc(ctx, s.close)
	return sdktest.QuantizerSubject{
		Search:   func(site sdk.Site, in sdk.SearchInput) error { return search(ctx, s, site, in) },
		Describe: func() (sdk.Description, error) { return c.Description(), nil },
		Programs: func(site sdk.Site) (spec.Quantizer, error) { return c.Quantize(ctx, site) },
	}
}

// Optimizer returns a test subject for a running optimizer; see [Quantizer].
func Optimizer(ctx context.Context, c *plugin.Client) sdktest.OptimizerSubject {
	o := &process[*plugin.Stepper]{client: c}
	context.AfterFunc(ctx, o.close)
	return sdktest.OptimizerSubject{
		Step:     func(tensor sdk.Tensor, in sdk.OpaqueStep) error { return step(ctx, o, tensor, in) },
		Describe: func() (sdk.Description, error) { return c.Description(), nil },
		Programs: func(tensor sdk.Tensor) (spec.Optimizer, error) { return c.Program(ctx, tensor) },
	}
}

// Check runs the kit on a running plugin with these settings, until ctx ends.
func Check(ctx context.Context, c *plugin.Client, settings map[string]any,
	options []sdktest.Option) (report sdktest.Report, err error) {
	if _, err := c.Resolve(settings); err != nil {
		return report, err
	}
	options = append(slices.Clone(options), sdktest.With(settings), sdktest.Until(ctx))
	tested, done := context.WithCancel(ctx)
	defer done()
	if c.Kind() == sdk.KindQuantizer {
		report = sdktest.CheckQuantizer(Quantizer(tested, c), options...)
	} else {
		report = sdktest.CheckOptimizer(Optimizer(tested, c), options...)
	}
	return report, ctx.Err()
}
