package assembly

import (
	"context"
	"sync"

	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/sdk"
)

// pool starts plugins, each once for all who ask for it, and ends them together.
type pool struct {
	finder  *plugin.Finder
	options plugin.Options
	known   map[pluginKey]*startOutcome
}

// pluginKey tells plugins apart.
type pluginKey struct {
	name   string
	sha256 string // "": any
	kind   sdk.Kind
}

// startOutcome is what became of the start of a plugin.
type startOutcome struct {
	client *plugin.Client // nil when it failed
	err    error
}

func newPool(finder *plugin.Finder, options plugin.Options) *pool {
	return &pool{finder: finder, options: options, known: map[pluginKey]*startOutcome{}}
}

// start starts, side by side, those of the plugins that do not run. What became of
// each is in known. One that has ended since it was started is started again, so that
// a crash concerns only the request that caused it.
func (p *pool) start(ctx context.Context, list []pluginKey) {
	missing := map[pluginKey]*startOutcome{} // each once, however often the list has it
	for _, w := range list {
		if old := p.known[w]; missing[w] == nil && (old == nil || old.ended()) {
			missing[w] = &startOutcome{}
		}
	}
	var all sync.WaitGroup
	for w, s := range missing {
		p.known[w] = s
		all.Go(func() {
			o := p.options
			o.SHA256 = w.sha256
			s.client, s.err = p.finder.Start(ctx, w.name, w.kind, o)
		})
	}
	all.Wait()
}

// ended reports whether the plugin ran and does no longer.
func (s *startOutcome) ended() bool {
	if s.client == nil {
		return false
	}
	select {
	case <-s.client.Done():
		s.client.Close()
		return true
	default:
		return false
	}
}

func (p *pool) close() {
	var all sync.WaitGroup
	for _, s := range p.known {
		if s.client != nil {
			all.Go(s.client.Close)
		}
	}
	all.Wait()
}
