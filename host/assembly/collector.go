package assembly

import (
	"context"
	"errors"
	"slices"

	"github.com/cage-qat/cage/host/config"
	"github.com/cage-qat/cage/host/plugin"
	"github.com/cage-qat/cage/sdk"
)

// collector holds the running plugins while their programs are collected.
type collector struct {
	Request
	clients map[*config.Plugin]*plugin.Client
	values  map[*config.Plugin]sdk.Values
	running []*plugin.Client
	matched map[string]bool // tables of overrides and groups that had an effect
	out     *Programs
}

// tables lists the tables of the configuration that name a plugin of this request.
// The optimizer for the rest is started only when something is left to it.
func (c *collector) tables() []*config.Plugin {
	list := c.Config.Quantizer.Plugins()
	if c.Forward {
		return list
	}
	for _, p := range c.Config.Optimizer.Plugins() {
		if p != c.Config.Optimizer.Rest {
			list = append(list, p)
		}
	}
	return list
}

// start starts the plugins of the given tables, each once, however many tables name
// it, and checks the parameters of all.
func (c *collector) start(ctx context.Context, list []*config.Plugin) error {
	type key struct {
		name, sha string
		kind      sdk.Kind
	}
	var requests []plugin.Request
	var tables []*config.Plugin
	index := map[key]int{}
	position := map[*config.Plugin]int{}
	for _, p := range list {
		kind := sdk.KindQuantizer
		if slices.Contains(c.Config.Optimizer.Plugins(), p) {
			kind = sdk.KindOptimizer
		}
		k := key{p.Name, p.SHA256, kind}
		if _, ok := index[k]; !ok {
			o := c.Options
			o.SHA256 = p.SHA256
			index[k] = len(requests)
			requests = append(requests, plugin.Request{Name: p.Name, Kind: kind, Options: o})
			tables = append(tables, p)
		}
		position[p] = index[k]
	}
	running, err := c.Finder.StartAll(ctx, requests...)
	if err != nil {
		return c.startError(err, tables)
	}
	c.running = append(c.running, running...)
	for p, i := range position {
		c.clients[p] = running[i]
		p.SHA256 = running[i].SHA256()
	}
	return c.resolve(list)
}

// startError places an error at the table of the plugin it is about.
func (c *collector) startError(err error, tables []*config.Plugin) error {
	var pe *plugin.Error
	if !errors.As(err, &pe) {
		return err
	}
	key := "plugin"
	if errors.Is(err, plugin.ErrChecksum) {
		key = "sha256"
	}
	return c.Config.ErrorAt(tables[pe.Request].Path(key), "%w", err)
}

func (c *collector) close() {
	for _, client := range c.running {
		client.Close()
	}
}

// resolve checks the parameters of every plugin's table against its declaration.
// The problems of all tables are reported together.
func (c *collector) resolve(list []*config.Plugin) error {
	var problems config.Errors
	for _, p := range list {
		client := c.clients[p]
		given := map[string]any{}
		for _, param := range p.Params {
			given[param.Key] = param.Value
		}
		d := client.Description()
		values, err := client.Resolve(given)
		if err != nil {
			for _, e := range c.parameterErrors(p, d, err) {
				// One table may serve both roles of the quantizer.
				if !slices.ContainsFunc(problems, func(o *config.Error) bool { return o.Error() == e.Error() }) {
					problems = append(problems, e)
				}
			}
			continue
		}
		c.values[p] = values
		c.out.Used = append(c.out.Used, Used{Table: p.Table, Name: d.Name, Version: d.Version, SHA256: client.SHA256(), Values: values.Map()})
	}
	if len(problems) > 0 {
		return problems
	}
	return nil
}

// parameterErrors gives every parameter error its line, and a hint.
func (c *collector) parameterErrors(p *config.Plugin, d sdk.Description, err error) config.Errors {
	list := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		list = joined.Unwrap()
	}
	var out config.Errors
	for _, one := range list {
		var pe *sdk.ParameterError
		if !errors.As(one, &pe) {
			out = append(out, c.Config.ErrorAt(p.Path("plugin"), "%w", one))
			continue
		}
		e := c.Config.ErrorAt(p.Path(pe.Name), "%v", pe.Err)
		if !pe.Known {
			e.Msg = "plugin " + d.Name + " has no such parameter"
			if near := config.Nearest(pe.Name, d.Names()); near != "" {
				e.Hint = "did you mean " + near + "?"
			} else {
				e.Hint = "see `cage plugins show " + p.Name + "`"
			}
		}
		out = append(out, e)
	}
	return out
}
