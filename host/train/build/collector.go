package build

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/schema"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/microscaling"
)

type collector struct {
	Request
	pool      *pool
	clients   map[string]*plugin.Client // by the plugin's table
	values    map[string]sdk.Values     // parameters by the plugin's table
	effective map[string]bool           // tables of overrides and groups that had an effect
	out       *Programs
}

func newCollector(req Request, running *pool) *collector {
	return &collector{
		Request: req, pool: running,
		clients: map[string]*plugin.Client{}, values: map[string]sdk.Values{},
		effective: map[string]bool{},
		out: &Programs{Forward: req.Forward, Piece: req.Piece, noAttention: req.NoAttention,
			executables: map[string]string{},
			scales:      map[string]microscaling.ScaleType{}},
	}
}

// tables lists the plugin tables that this request needs, including tables without effect, so that
// mistakes in them are reported. The default of optimizer.rest is left out: it is only started when
// a tensor needs it.
func (c *collector) tables() []*config.Plugin {
	q, o := &c.Config.Quantizer, &c.Config.Optimizer
	if c.Forward {
		return q.Forward().Plugins()
	}
	list := q.Plugins()
	if q.Unused != nil {
		list = append(list, q.Unused)
	}
	byDefault := func(p *config.Plugin) bool { return p == o.Rest && !o.RestGiven() }
	return slices.DeleteFunc(append(list, o.Plugins()...), byDefault)
}

// start starts the plugins of the given tables, each only once, and checks the parameters in all
// tables. The problems of all tables are reported together.
func (c *collector) start(ctx context.Context, list []*config.Plugin) error {
	names := make([]pluginKey, len(list))
	for i, p := range list {
		names[i] = pluginKey{p.Name, p.SHA256, sdk.KindQuantizer}
		if slices.Contains(c.Config.Optimizer.Plugins(), p) {
			names[i].kind = sdk.KindOptimizer
		}
	}
	c.pool.start(ctx, names)
	var problems plaintoml.Errors
	report := func(e *plaintoml.Error) { // without duplicates
		same := func(o *plaintoml.Error) bool { return o.Error() == e.Error() }
		if !slices.ContainsFunc(problems, same) {
			problems = append(problems, e)
		}
	}
	for i, p := range list {
		s := c.pool.known[names[i]]
		if s.err != nil {
			if _, ofPlugin := errors.AsType[*plugin.Error](s.err); !ofPlugin {
				return s.err
			}
			key := "plugin"
			if errors.Is(s.err, plugin.ErrChecksum) {
				key = "sha256"
			}
			if slices.Index(names, names[i]) == i {
				report(c.Config.ErrorAt(p.Path(key), "%w", s.err))
			}
			continue
		}
		c.clients[p.Table] = s.client
		d := s.client.Description()
		values, err := s.client.Resolve(p.Params)
		if err == nil {
			c.values[p.Table] = values
			c.out.Used = append(c.out.Used, Used{Table: p.Table, Name: d.Name, Version: d.Version,
				SHA256: s.client.SHA256(), Values: values.Map()})
			continue
		}
		errs := []error{err}
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			errs = joined.Unwrap()
		}
		for _, one := range errs {
			pe, ok := errors.AsType[*sdk.ParameterError](one)
			if !ok {
				report(c.Config.ErrorAt(p.Path("plugin"), "%w", one))
				continue
			}
			e := c.Config.ErrorAt(p.Path(pe.Name), "%v", pe.Err)
			if !pe.Known {
				e.Msg = "plugin " + d.Name + " has no such parameter"
				e.Hint = "see `cage plugins show " + p.Name + "`"
				if near := schema.Nearest(pe.Name, d.Names()); near != "" {
					e.Hint = "did you mean " + near + "?"
				}
			}
			report(e)
		}
	}
	if len(problems) > 0 {
		return problems
	}
	return nil
}

type pool struct {
	finder  *plugin.Finder
	options plugin.Options
	known   map[pluginKey]*startOutcome
}

type pluginKey struct {
	name   string
	sha256 string // empty means any
	kind   sdk.Kind
}

type startOutcome struct {
	client *plugin.Client // nil if it failed
	err    error
}

func newPool(finder *plugin.Finder, options plugin.Options) *pool {
	return &pool{finder: finder, options: options, known: map[pluginKey]*startOutcome{}}
}

// start starts the plugins that have not been started yet or have exited, in parallel, and stores
// the outcomes in p.known.
func (p *pool) start(ctx context.Context, list []pluginKey) {
	missing := map[pluginKey]*startOutcome{} // without duplicates
	for _, w := range list {
		if missing[w] != nil {
			continue
		}
		old := p.known[w]
		if old != nil && old.client != nil {
			select {
			case <-old.client.Done():
				old.client.Close()
				old = nil
			default:
			}
		}
		if old == nil {
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

func (p *pool) close() {
	var all sync.WaitGroup
	for _, s := range p.known {
		if s.client != nil {
			all.Go(s.client.Close)
		}
	}
	all.Wait()
}
