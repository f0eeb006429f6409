package assembly

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cage-qat/cage/host/config"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/plugin"
	"github.com/cage-qat/cage/sdk"
)

// Programs is what the plugins of a run handed over.
type Programs struct {
	// Weights and Activations hold the quantizers' programs by parameter and
	// by site; both are empty for a role that is not quantized.
	Weights, Activations map[string]sdk.QuantizerProgram
	// Optimizer holds the optimizer's programs in the order of the parameters.
	Optimizer []sdk.OptimizerProgram
	// Used tells which plugins ran.
	Used []Used
	// Start is how long the plugins took to start, side by side; Handover how
	// long their programs took to arrive.
	Start, Handover time.Duration
}

// Used is a plugin that took part in a run.
type Used struct {
	Table   string         `json:"table"` // of the configuration
	Name    string         `json:"name"`
	Version string         `json:"version,omitempty"`
	SHA256  string         `json:"sha256"`
	Values  map[string]any `json:"parameters"` // defaults filled in
}

// Request says which programs to collect.
type Request struct {
	Config *config.Config
	Model  model.Model
	// Batch is the number of sequences computed at once, which is part of the
	// shape of activations.
	Batch int
	// Forward leaves the optimizer out, as evaluation does.
	Forward bool
	Finder  *plugin.Finder
	Options plugin.Options
}

// Collect starts the plugins that the configuration names, checks their
// parameters, collects the programs for every tensor and site of the model, and
// stops them: no later step needs a plugin. The hashes of what ran are written into
// the configuration.
func Collect(ctx context.Context, req Request) (*Programs, error) {
	c := &collector{Request: req, out: &Programs{}}
	began := time.Now()
	if err := c.start(ctx); err != nil {
		return nil, err
	}
	defer c.close()
	c.out.Start = time.Since(began)
	if err := c.resolve(); err != nil {
		return nil, err
	}
	began = time.Now()
	collects := []func(context.Context) error{c.weights, c.activations}
	if !req.Forward {
		collects = append(collects, c.optimizer)
	}
	for _, collect := range collects {
		if err := collect(ctx); err != nil {
			return nil, err
		}
	}
	c.out.Handover = time.Since(began)
	return c.out, nil
}

// collector holds the running plugins while their programs are collected.
type collector struct {
	Request
	clients map[*config.Plugin]*plugin.Client
	values  map[*config.Plugin]sdk.Values
	running []*plugin.Client
	out     *Programs
}

// tables lists the tables of the configuration that name a plugin of this request.
func (c *collector) tables() []*config.Plugin {
	var list []*config.Plugin
	for _, p := range []*config.Plugin{c.Config.Quantizer.Weights, c.Config.Quantizer.Activations} {
		if p != nil {
			list = append(list, p)
		}
	}
	if !c.Forward {
		list = append(list, &c.Config.Optimizer)
	}
	return list
}

// start starts every plugin once, even if it serves both roles of the quantizer.
func (c *collector) start(ctx context.Context) error {
	type key struct {
		name, sha string
		kind      sdk.Kind
	}
	var requests []plugin.Request
	var tables []*config.Plugin
	index := map[key]int{}
	position := map[*config.Plugin]int{}
	for _, p := range c.tables() {
		kind := sdk.KindQuantizer
		if p == &c.Config.Optimizer {
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
	c.running = running
	c.clients = map[*config.Plugin]*plugin.Client{}
	for p, i := range position {
		c.clients[p] = running[i]
		p.SHA256 = running[i].SHA256()
	}
	return nil
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
func (c *collector) resolve() error {
	c.values = map[*config.Plugin]sdk.Values{}
	var problems config.Errors
	for _, p := range c.tables() {
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

func (c *collector) weights(ctx context.Context) error {
	p := c.Config.Quantizer.Weights
	if p == nil {
		return nil
	}
	var err error
	c.out.Weights = map[string]sdk.QuantizerProgram{}
	for _, param := range c.Model.Params() {
		if !param.Quantized {
			continue
		}
		site := sdk.Site{Role: sdk.RoleWeight, Name: param.Name, Shape: param.Dims, Values: c.values[p]}
		if c.out.Weights[param.Name], err = c.quantize(ctx, p, site); err != nil {
			return err
		}
	}
	return nil
}

func (c *collector) activations(ctx context.Context) error {
	p := c.Config.Quantizer.Activations
	if p == nil {
		return nil
	}
	var err error
	c.out.Activations = map[string]sdk.QuantizerProgram{}
	for _, s := range c.Model.ActivationSites(c.Batch, c.Config.Model.Context) {
		site := sdk.Site{Role: sdk.RoleActivation, Name: s.Name, Shape: []int{s.Tokens, s.Width}, Values: c.values[p]}
		if c.out.Activations[s.Name], err = c.quantize(ctx, p, site); err != nil {
			return err
		}
	}
	return nil
}

func (c *collector) quantize(ctx context.Context, p *config.Plugin, site sdk.Site) (sdk.QuantizerProgram, error) {
	q, err := c.clients[p].Quantize(ctx, site)
	if err != nil {
		return q, c.Config.ErrorAt(p.Path("plugin"), "%w", err)
	}
	return q, nil
}

func (c *collector) optimizer(ctx context.Context) error {
	p := &c.Config.Optimizer
	for _, param := range c.Model.Params() {
		t := sdk.Tensor{Name: param.Name, Role: tensorRole(param.Role), Shape: param.Dims, Values: c.values[p]}
		o, err := c.clients[p].Program(ctx, t)
		if err != nil {
			return c.Config.ErrorAt(p.Path("plugin"), "%w", err)
		}
		c.out.Optimizer = append(c.out.Optimizer, o)
	}
	return nil
}

func tensorRole(r model.Role) sdk.TensorRole {
	switch r {
	case model.RoleMatrix:
		return sdk.TensorMatrix
	case model.RoleEmbedding:
		return sdk.TensorEmbedding
	case model.RoleHead:
		return sdk.TensorHead
	}
	return sdk.TensorVector
}
