// Package conformance adapts a host's plugin processes and devices to the
// conformance kit (package sdktest). It contains no checks of its own.
package conformance

import (
	"context"
	"slices"
	"sync"

	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/sdktest"
	"github.com/cage-qat/cage/sdk/spec"
)

// Quantizer returns a test subject for a running quantizer. If its process ends during the test, it
// is restarted, up to 20 times, so that a crash fails only the check that caused it. Restarted
// processes are closed when ctx is cancelled; requests then fail.
func Quantizer(ctx context.Context, c *plugin.Client) sdktest.QuantizerSubject {
	r := &restartable{client: c}
	s := &process[*plugin.Searcher]{client: c}
	context.AfterFunc(ctx, s.close)
	return sdktest.QuantizerSubject{
		Search:   func(site sdk.Site, in sdk.SearchInput) error { return search(ctx, s, site, in) },
		Describe: func() (sdk.Description, error) { return c.Description(), nil },
		Programs: func(site sdk.Site) (out spec.Quantizer, err error) {
			client, err := r.get(ctx)
			if err != nil {
				return out, err
			}
			return client.Quantize(ctx, site)
		},
	}
}

// Optimizer returns a test subject for a running optimizer; see [Quantizer].
func Optimizer(ctx context.Context, c *plugin.Client) sdktest.OptimizerSubject {
	r := &restartable{client: c}
	o := &process[*plugin.Stepper]{client: c}
	context.AfterFunc(ctx, o.close)
	return sdktest.OptimizerSubject{
		Step:     func(tensor sdk.Tensor, in sdk.OpaqueStep) error { return step(ctx, o, tensor, in) },
		Describe: func() (sdk.Description, error) { return c.Description(), nil },
		Programs: func(tensor sdk.Tensor) (out spec.Optimizer, err error) {
			client, err := r.get(ctx)
			if err != nil {
				return out, err
			}
			return client.Program(ctx, tensor)
		},
	}
}

// maxRestarts bounds the duration of the test of a plugin that crashes at every request.
const maxRestarts = 20

// restartable is a plugin that is restarted when its process has ended.
type restartable struct {
	mu       sync.Mutex
	client   *plugin.Client
	restarts int
}

func (r *restartable) get(ctx context.Context) (*plugin.Client, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.client.Done():
	default:
		return r.client, nil
	}
	if r.restarts == maxRestarts {
		return r.client, nil // its errors explain how the process ended
	}
	r.restarts++
	again, err := r.client.Restart(ctx)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, again.Close)
	r.client.Close()
	r.client = again
	return again, nil
}

// Check runs the kit on a running plugin with these settings.
func Check(ctx context.Context, c *plugin.Client, settings map[string]any,
	options []sdktest.Option) (report sdktest.Report, err error) {
	if _, err := c.Resolve(settings); err != nil {
		return report, err
	}
	options = append(slices.Clone(options), sdktest.With(settings))
	tested, done := context.WithCancel(ctx)
	defer done()
	if c.Kind() == sdk.KindQuantizer {
		report = sdktest.CheckQuantizer(Quantizer(tested, c), options...)
	} else {
		report = sdktest.CheckOptimizer(Optimizer(tested, c), options...)
	}
	return report, ctx.Err()
}
