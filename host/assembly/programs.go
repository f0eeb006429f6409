package assembly

import (
	"context"
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
	// Tensors lists everything that is trained, with its optimizer: the model's
	// parameters, then the quantizers' in the order of step.Plan.Trained.
	Tensors []Tensor
	// Used tells which plugins ran.
	Used []Used
	// Start is how long the plugins took to start, side by side; Handover how
	// long their programs took to arrive.
	Start, Handover time.Duration
}

// Tensor is a trained tensor with the settings of its group.
type Tensor struct {
	Name      string
	Shape     []int
	Role      sdk.TensorRole
	Optimizer sdk.OptimizerProgram // zero for an evaluation
	Table     string               // of the optimizer's configuration
	// RateFactor multiplies the learning rate; Decay is the weight decay.
	RateFactor, Decay float64
	// RefreshDelay is by how many updates refreshes take effect late.
	RefreshDelay int
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
	running := newPool(req.Finder, req.Options)
	defer running.close()
	c := newCollector(req, running)
	programs, err := c.collect(ctx)
	for p, client := range c.clients {
		p.SHA256 = client.SHA256()
	}
	return programs, err
}

// collect asks the plugins of the pool for everything.
func (c *collector) collect(ctx context.Context) (*Programs, error) {
	began := time.Now()
	if err := c.start(ctx, c.tables()); err != nil {
		return nil, err
	}
	c.out.Start = time.Since(began)
	began = time.Now()
	for _, collect := range []func(context.Context) error{c.weights, c.activations, c.optimizers} {
		if err := collect(ctx); err != nil {
			return nil, err
		}
	}
	if err := c.unused(); err != nil {
		return nil, err
	}
	c.out.Handover = time.Since(began)
	return c.out, nil
}

func (c *collector) weights(ctx context.Context) error {
	c.out.Weights = map[string]sdk.QuantizerProgram{}
	for _, param := range c.Model.Params() {
		if param.Quantized {
			if err := c.quantize(ctx, c.out.Weights, config.RoleWeights, sdk.Site{Role: sdk.RoleWeight, Name: param.Name, Shape: param.Dims}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *collector) activations(ctx context.Context) error {
	c.out.Activations = map[string]sdk.QuantizerProgram{}
	for _, s := range c.Model.ActivationSites(c.Batch, c.Config.Model.Context) {
		site := sdk.Site{Role: sdk.RoleActivation, Name: s.Name, Shape: []int{s.Tokens, s.Width}}
		if err := c.quantize(ctx, c.out.Activations, config.RoleActivations, site); err != nil {
			return err
		}
	}
	return nil
}

// quantize collects the program of one site, if it is quantized.
func (c *collector) quantize(ctx context.Context, into map[string]sdk.QuantizerProgram, role string, site sdk.Site) error {
	if o := c.Config.Quantizer.Override(role, site.Name); o != nil {
		c.matched[o.Table] = true
	}
	p := c.Config.Quantizer.For(role, site.Name)
	if p == nil {
		return nil
	}
	site.Values = c.values[p]
	q, err := c.clients[p].Quantize(ctx, site)
	if err != nil {
		return c.Config.ErrorAt(p.Path("plugin"), "%w", err)
	}
	into[site.Name] = q
	return nil
}
