package build

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/fakequant"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// Programs holds the programs returned by the plugins of a run.
type Programs struct {
	// Weights holds the quantizers' programs by parameter, Activations by site. Parameters and
	// sites that are not quantized have none.
	Weights, Activations map[string]spec.Quantizer
	// Settings identifies the quantizers in Weights and Activations: entries are equal if both the
	// plugin and its parameters are.
	Settings map[string]string
	// Backward holds the programs for the operands of matrix products in the backward pass; it is
	// empty for an evaluation.
	Backward map[step.OperandSite]spec.Quantizer
	// Pieces holds the programs for activations by the number of tokens; see [Request].Pieces.
	Pieces map[int]map[string]spec.Quantizer
	// Tensors lists all tensors with their optimizers, in the order of step.Plan.Rules: the model's
	// parameters, the factors of adapters, then the parameters of the quantizers.
	Tensors []TrainedTensor
	// Forward is copied from the [Request].
	Forward bool
	// Piece is copied from the [Request].
	Piece int
	// Used lists the plugins whose programs are used.
	Used        []Used
	noAttention bool // from the [Request]
	// computing lists the plugins that compute in their own processes; executables holds the
	// SHA-256 of quantizers that search, by weight name.
	computing   []*computing
	executables map[string]string
	// scales holds the types to which quantizers round their scales, by weight; see
	// [microscaling.ScaleParameter].
	scales map[string]microscaling.ScaleType
	// Took is the time that starting the plugins and collecting their programs took.
	Took time.Duration
}

// computing is a plugin that computes in its own process: an opaque optimizer or a quantizer that
// searches. It is stopped when the programs have been collected, and started again for training.
type computing struct {
	key     string // of the plugin in the configuration
	client  *plugin.Client
	tensors []plugin.OpaqueTensor // tensors that the optimizer updates
	sites   []plugin.SearchedSite // weights whose states the quantizer searches
}

// QuantizersTake reports whether a quantizer's training program takes a per-step input.
func (p *Programs) QuantizersTake(input string) bool {
	for _, sites := range []iter.Seq[spec.Quantizer]{maps.Values(p.Weights),
		maps.Values(p.Activations), maps.Values(p.Backward)} {
		for q := range sites {
			if q.HasInput(input) {
				return true
			}
		}
	}
	return false
}

// Searches reports whether a quantizer of a weight searches, for which it is told the number of
// steps of the run.
func (p *Programs) Searches() bool {
	for _, q := range p.Weights {
		if q.SearchEvery > 0 {
			return true
		}
	}
	return false
}

// computes returns the plugin's entry in p.computing, which it adds if necessary.
func (p *Programs) computes(table *config.Plugin, c *plugin.Client) *computing {
	for _, known := range p.computing {
		if known.client == c {
			return known
		}
	}
	part := &computing{key: table.Path("plugin"), client: c}
	p.computing = append(p.computing, part)
	return part
}

// TrainedTensor is a trained parameter of the model or of a quantizer, with its group's settings.
type TrainedTensor struct {
	Name      string
	Shape     []int
	Role      sdk.TensorRole
	Parts     []sdk.Part       // parts of a fused weight
	Optimizer spec.Optimizer   // zero for an evaluation
	Table     string           // table that configures the optimizer
	Constrain *program.Program // for a quantizer's parameter; see cage.Rule
	// RateFactor multiplies the learning rate; Decay is the weight decay.
	RateFactor, Decay float64
	// Frozen is set for parameters that are not trained, which have no optimizer, and FactorOf, the
	// name of a weight, for the factors of its adapter.
	Frozen   bool
	FactorOf string
	// Executable is the SHA-256 of an opaque optimizer's executable; "" for other optimizers.
	Executable string
	// RefreshDelay is the number of updates after which the result of a refresh is used.
	RefreshDelay int
}

// average returns the settings of the tensor's average over steps, or nil if it has none. Frozen
// tensors have none, nor do constrained ones, whose mean may violate the constraint.
func (t *TrainedTensor) average(cfg *config.Config) *cage.Average {
	if t.Frozen || t.RateFactor == 0 || t.Constrain != nil {
		return nil
	}
	return cfg.Train.Averaging()
}

// Used is a plugin that was used in a run.
type Used struct {
	Table   string         `json:"table"` // its table in the configuration
	Name    string         `json:"name"`
	Version string         `json:"version,omitempty"`
	SHA256  string         `json:"sha256"`
	Values  map[string]any `json:"parameters"` // with defaults filled in
}

// Request holds the arguments of [Collect].
type Request struct {
	Config *config.Config
	Model  model.Model
	// Batch is the number of sequences in a batch, which determines the shape of activations.
	Batch int
	// Forward omits the optimizer, as for evaluation.
	Forward bool
	// Piece is the number of tokens per sequence that an evaluation with a KV cache processes at
	// once; 0 means whole sequences without a cache.
	Piece int
	// Pieces lists the numbers of tokens that may be processed at once when sequences are
	// continued. Programs for activations are collected for each of them; see step.Plan.
	Pieces []int
	// NoAttention excludes the operands of attention from the programs for Pieces.
	NoAttention bool
	// Processes connects the processes that share the device; nil if no other process uses it.
	Processes engine.Processes
	Finder    *plugin.Finder
	Options   plugin.Options
}

// Collect starts the configured plugins, checks their parameters, requests the programs for all
// tensors and sites of the model, and stops the plugins.
func Collect(ctx context.Context, req Request) (*Programs, error) {
	running := newPool(req.Finder, req.Options)
	defer running.close()
	return newCollector(req, running).collect(ctx)
}

// Pinned returns a copy of cfg with the hashes of the plugins that were used.
func (p *Programs) Pinned(cfg *config.Config) *config.Config {
	hashes := map[string]string{}
	for _, u := range p.Used {
		hashes[u.Table] = u.SHA256
	}
	pinned, _ := cfg.Changed(func(c *config.Config) error {
		for _, q := range c.Plugins() {
			if hash, ran := hashes[q.Table]; ran {
				q.SHA256 = hash
			}
		}
		return nil
	})
	return pinned
}

func (c *collector) collect(ctx context.Context) (*Programs, error) {
	began := time.Now()
	if err := c.start(ctx, c.tables()); err != nil {
		return nil, err
	}
	for _, collect := range []func(context.Context) error{
		c.weights, c.activations, c.backward, c.optimizers, c.checkUnused,
	} {
		if err := collect(ctx); err != nil {
			return nil, err
		}
	}
	// Leave out plugins that are configured but have no effect.
	q, rest := &c.Config.Quantizer, c.Config.Optimizer.Rest.Table
	byRest := func(t TrainedTensor) bool { return t.Table == rest }
	restUnused := !slices.ContainsFunc(c.out.Tensors, byRest)
	c.out.Used = slices.DeleteFunc(c.out.Used, func(u Used) bool {
		return u.Table == rest && restUnused || q.Unused != nil && u.Table == q.Unused.Table
	})
	c.out.Took = time.Since(began)
	return c.out, nil
}

func (c *collector) weights(ctx context.Context) error {
	c.out.Weights, c.out.Settings = map[string]spec.Quantizer{}, map[string]string{}
	for _, param := range c.Model.Params() {
		if param.Quantized {
			site := sdk.Site{Role: sdk.RoleWeight, Name: param.Name, Shape: param.Dims}
			site.Heads, site.RowHeads = c.headsOfWeight(param.Name)
			if err := c.quantize(ctx, c.out.Weights, roleOfWeight(param), site); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *collector) activations(ctx context.Context) (err error) {
	context := c.Config.Model.Context
	sites := c.Model.ActivationSites(c.Batch, context)
	if c.out.Activations, err = c.quantizeActivations(ctx, sites, context); err != nil {
		return err
	}
	c.out.Pieces = map[int]map[string]spec.Quantizer{}
	for _, tokens := range c.Pieces {
		sites := c.Model.ActivationSites(1, tokens)
		if c.NoAttention {
			sites = slices.DeleteFunc(sites, func(s model.ActivationSite) bool { return len(s.Feeds) == 0 })
		}
		if c.out.Pieces[tokens], err = c.quantizeActivations(ctx, sites, 1); err != nil {
			return err
		}
	}
	return nil
}

// quantizeActivations collects the programs for activations at the given sites. length is the
// number of consecutive rows that belong to the same sequence, or 1 if it is unknown.
func (c *collector) quantizeActivations(
	ctx context.Context, sites []model.ActivationSite, length int,
) (map[string]spec.Quantizer, error) {
	list := map[string]spec.Quantizer{}
	for _, s := range sites {
		role, configured := roleOfSite(s.Kind)
		site := sdk.Site{Role: role, Name: s.Name, Shape: []int{s.Tokens, s.Width},
			Heads: s.Heads, Context: length}
		if err := c.quantize(ctx, list, configured, site); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (c *collector) backward(ctx context.Context) error {
	c.out.Backward = map[step.OperandSite]spec.Quantizer{}
	if c.Forward {
		return nil
	}
	sites, shapes := step.BackwardSites(c.Model, c.Batch, c.Config.Model.Context)
	for i, s := range sites {
		role := config.RoleBackward
		if s.Role == sdk.RoleGradient {
			role = config.RoleGradients
		}
		site := sdk.Site{Role: s.Role, Product: s.Product, Name: s.Name, Shape: shapes[i]}
		in, out := c.headsOfWeight(strings.TrimSuffix(s.Name, ".input"))
		switch {
		case s.Product == sdk.ProductWeightGradient && s.Role == sdk.RoleActivation: // [in, tokens]
			site.RowHeads = in
		case s.Product == sdk.ProductWeightGradient: // [out, tokens]
			site.RowHeads = out
		case s.Role == sdk.RoleGradient: // [tokens, out]
			site.Heads, site.Context = out, c.Config.Model.Context
		default: // [in, out]
			site.Heads, site.RowHeads = out, in
		}
		q, p, err := c.program(ctx, role, site)
		if err != nil {
			var e *plaintoml.Error
			if s.Product == sdk.ProductWeightGradient && errors.As(err, &e) && e.Hint == "" {
				e.Hint = fmt.Sprintf("the gradient of a weight sums over the %d tokens of a "+
					"micro-batch: model.context × train.batch / device.count", shapes[i][1])
			}
			return err
		}
		if p == nil {
			continue
		}
		if _, err := fakequant.NewOperand(*q); err != nil {
			return c.Config.ErrorAt(p.Path("plugin"), "%s of %s: %w", role, s.Name, err)
		}
		c.out.Backward[s] = *q
	}
	return nil
}

func (c *collector) quantize(
	ctx context.Context, into map[string]spec.Quantizer, role string, site sdk.Site,
) error {
	q, p, err := c.program(ctx, role, site)
	if q != nil {
		into[site.Name] = *q
		values := c.values[p.Table].Map()
		c.out.Settings[site.Name] = fmt.Sprint(c.clients[p.Table].SHA256(), values)
		name, _ := values[microscaling.ScaleParameter().Name].(string)
		c.out.scales[site.Name] = microscaling.ScaleType(name)
	}
	return err
}

func (c *collector) program(
	ctx context.Context, role string, site sdk.Site,
) (*spec.Quantizer, *config.Plugin, error) {
	if o := c.Config.Quantizer.Override(role, site.Name); o != nil {
		c.effective[o.Table] = true
	}
	p := c.Config.Quantizer.For(role, site.Name)
	if p == nil {
		return nil, nil, nil
	}
	site.Values = c.values[p.Table]
	site.Layer, site.Layers = architecture.LayerOf(site.Name), c.Config.Model.Layers
	q, err := c.clients[p.Table].Quantize(ctx, site)
	if err != nil {
		return nil, p, c.Config.ErrorAt(p.Path("plugin"), "%w", err)
	}
	if q.SearchEvery > 0 && !c.Forward {
		client := c.clients[p.Table]
		c.out.executables[site.Name] = client.SHA256()
		part := c.out.computes(p, client)
		part.sites = append(part.sites, plugin.SearchedSite{Site: site, Answer: q})
	}
	return &q, p, nil
}

func roleOfSite(kind model.SiteKind) (role sdk.Role, configured string) {
	switch kind {
	case model.KindKey:
		return sdk.RoleKey, config.RoleKeys
	case model.KindValue:
		return sdk.RoleValue, config.RoleValues
	case model.KindQuery:
		return sdk.RoleQuery, config.RoleQueries
	case model.KindHead:
		return sdk.RoleActivation, config.RoleHead
	}
	return sdk.RoleActivation, config.RoleActivations
}

func roleOfWeight(p architecture.Param) string {
	if p.Role == architecture.RoleMatrix {
		return config.RoleWeights
	}
	return config.RoleHead // tied to the embedding
}

// headsOfWeight returns the numbers of attention heads along the columns and along the rows of a
// weight. A number is 0 if the axis is not divided into heads.
func (c *collector) headsOfWeight(name string) (columns, rows int) {
	m := c.Config.Model
	switch {
	case strings.HasSuffix(name, "attn.qkv"):
		return 0, m.Heads + 2*m.KVHeads
	case strings.HasSuffix(name, "attn.out"):
		return m.Heads, 0
	}
	return 0, 0
}
