package build

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/compute/refresh"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/lora"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

func (c *collector) optimizers(ctx context.Context) error {
	if err := c.checkShared(); err != nil {
		return err
	}
	c.out.Tensors = Tensors(c.Config, c.Model, c.out)
	if c.Forward {
		return nil
	}
	for i := range c.out.Tensors {
		t := &c.out.Tensors[i]
		if t.Frozen {
			continue
		}
		if err := c.optimizer(ctx, t); err != nil {
			return err
		}
		if t.Optimizer.Evaluate != nil && c.Config.Train.Averaging() != nil {
			return c.Config.ErrorAt("train.average", "the optimizer of %s has weights of its own for "+
				"evaluation, which are an average already", t.Name).
				WithHint("leave train.average out, or choose another optimizer")
		}
	}
	return nil
}

// Tensors lists all trained tensors: the model's parameters, then those of p's quantizers, which
// have no weight decay. It does not assign optimizers to them.
func Tensors(cfg *config.Config, m model.Model, p *Programs) []TrainedTensor {
	roles := map[architecture.Role]sdk.TensorRole{architecture.RoleMatrix: sdk.TensorMatrix,
		architecture.RoleEmbedding: sdk.TensorEmbedding, architecture.RoleHead: sdk.TensorHead}
	var list []TrainedTensor
	for _, param := range m.Params() {
		role := cmp.Or(roles[param.Role], sdk.TensorVector)
		t := TrainedTensor{Name: param.Name, Shape: param.Dims, Role: role, RateFactor: 1}
		first := 0
		for _, p := range param.Parts {
			t.Parts = append(t.Parts, sdk.Part{Name: p.Name, First: first, Rows: p.Rows})
			first += p.Rows
		}
		if param.Decay {
			t.Decay = cfg.Train.WeightDecay
		}
		list = append(list, t)
	}
	adapters := cfg.Adapters.Of(cfg.Model)
	if p.Forward {
		adapters = nil
	}
	for i := range list {
		if list[i].Frozen = len(adapters) > 0; list[i].Frozen {
			list[i].Decay = 0
		}
	}
	for _, a := range adapters {
		A, B := a.A(), a.B()
		for _, f := range []lora.Factor{A, B} {
			t := TrainedTensor{Name: f.Name, Shape: f.Dims, Role: sdk.TensorMatrix,
				RateFactor: 1, Decay: cfg.Train.WeightDecay, FactorOf: a.Weight}
			first := 0
			for _, p := range a.Parts {
				rows := p.Rank
				if f.Name == B.Name {
					rows = len(p.Rows)
				}
				t.Parts = append(t.Parts, sdk.Part{Name: p.Module, First: first, Rows: rows})
				first += rows
			}
			if len(t.Parts) == 1 {
				t.Parts = nil
			}
			list = append(list, t)
		}
	}
	trained := func(site string, q spec.Quantizer) {
		for _, t := range q.Trained {
			tensor := TrainedTensor{Name: t.At(site), Shape: t.Shape, Role: sdk.TensorVector,
				RateFactor: 1, Constrain: t.Constrain}
			same := func(other TrainedTensor) bool { return other.Name == tensor.Name }
			if !slices.ContainsFunc(list, same) {
				list = append(list, tensor)
			}
		}
	}
	for _, param := range m.Params() {
		trained(param.Name, p.Weights[param.Name])
	}
	for _, s := range m.ActivationSites(ReplicaBatch(cfg), cfg.Model.Context) {
		trained(s.Name, p.Activations[s.Name])
	}
	return list
}

func (c *collector) checkShared() error {
	type owner struct {
		site string
		spec.Tensor
	}
	first := map[string]owner{}
	for _, list := range []map[string]spec.Quantizer{c.out.Weights, c.out.Activations} {
		for _, site := range slices.Sorted(maps.Keys(list)) {
			for _, t := range list[site].Trained {
				o, ok := first[t.Shared]
				switch {
				case t.Shared == "":
				case !ok:
					first[t.Shared] = owner{site, t}
				case !slices.Equal(o.Shape, t.Shape):
					return c.Config.ErrorAt("quantizer",
						"%s and %s share the trained parameter %.100q, but its shapes %v and %v differ",
						o.site, site, t.Shared, o.Shape, t.Shape)
				case hash(o.Constrain) != hash(t.Constrain):
					return c.Config.ErrorAt("quantizer",
						"%s and %s share the trained parameter %.100q, but its constraints differ",
						o.site, site, t.Shared)
				}
			}
		}
	}
	return nil
}

func hash(p *program.Program) string {
	if p == nil {
		return ""
	}
	return p.Hash()
}

// optimizer collects the programs for a tensor from its group's own optimizer. If there is none, it
// asks the main optimizer and, if that does not accept the tensor, optimizer.rest.
func (c *collector) optimizer(ctx context.Context, t *TrainedTensor) error {
	o := &c.Config.Optimizer
	p, candidates := &o.Plugin, []*config.Plugin{&o.Plugin, o.Rest}
	g := o.Group(string(t.Role), t.Name)
	if g != nil {
		c.effective[g.Table] = true
		t.RateFactor = g.Rate
		if g.WeightDecay != nil {
			t.Decay = *g.WeightDecay
		}
		if g.Plugin != nil {
			candidates = []*config.Plugin{g.Plugin}
		}
	}
	for _, p = range candidates {
		if c.clients[p.Table] == nil { // Rest is only started when a tensor needs it
			if err := c.start(ctx, []*config.Plugin{p}); err != nil {
				return err
			}
		}
		accepted, err := c.requestOptimizer(ctx, p, t)
		if err != nil {
			return err
		}
		if accepted {
			return c.delay(t, g, p)
		}
	}
	return c.Config.ErrorAt(p.Path("plugin"), "%s does not accept %s (%s, %v)",
		p.Name, t.Name, t.Role, t.Shape).
		WithHint("give it another optimizer with [[optimizer.groups]]")
}

func (c *collector) delay(t *TrainedTensor, g *config.Group, p *config.Plugin) error {
	updates, key := c.Config.Optimizer.Delay(g, p)
	if err := refresh.CheckDelay(t.Optimizer, updates); err != nil {
		e := c.Config.ErrorAt(key, "%s for %s: %w", p.Name, t.Name, err)
		e.Hint = fmt.Sprintf("want 0 to %d", max(0, t.Optimizer.Due.Every-1))
		if updates < t.Optimizer.Due.Every {
			e.Hint = "want 0 for this optimizer"
		}
		return e
	}
	t.RefreshDelay = updates
	return nil
}

func (c *collector) requestOptimizer(
	ctx context.Context, p *config.Plugin, t *TrainedTensor,
) (accepted bool, err error) {
	tensor := sdk.Tensor{Name: t.Name, Role: t.Role, Shape: t.Shape, Parts: t.Parts,
		Values: c.values[p.Table]}
	program, err := c.clients[p.Table].Program(ctx, tensor)
	if err != nil {
		return false, c.Config.ErrorAt(p.Path("plugin"), "%w", err)
	}
	t.Optimizer, t.Table = program, p.Table
	if program.Opaque {
		t.Executable = c.clients[p.Table].SHA256()
		part := c.out.computes(p, c.clients[p.Table])
		part.tensors = append(part.tensors, plugin.OpaqueTensor{Tensor: tensor,
			State: t.Optimizer.State, RateFactor: t.RateFactor})
	}
	return program.Accepts, nil
}

// checkUnused reports overrides and groups that have no effect, because they match nothing in the
// model or because others take precedence wherever they match.
func (c *collector) checkUnused(context.Context) error {
	var problems plaintoml.Errors
	report := func(table string, match []string, matches bool, among, others string, names []string) {
		e := c.Config.ErrorAt(table, "has no effect: %s takes precedence for all %s that it matches",
			others, among)
		if !matches {
			e = c.Config.ErrorAt(table, "matches none of the model's %s", among)
			e.Hint = fmt.Sprintf("match = %q, but the model has %s", match,
				strings.Join(distinctNames(names), ", "))
		}
		problems = append(problems, e)
	}
	overrides := c.Config.Quantizer.Overrides
	if c.Forward {
		overrides = c.Config.Quantizer.Forward().Overrides
	}
	for _, o := range overrides {
		matches := len(c.matched(&o)) > 0
		if !c.effective[o.Table] && !(c.Forward && matches) { // a training may use it
			any := o
			any.Match, any.Layers = nil, nil
			report(o.Table, o.Match, matches, "quantized weights and activations",
				"a later override", c.matched(&any))
		}
	}
	if !c.Forward {
		for _, g := range c.Config.Optimizer.Groups {
			if !c.effective[g.Table] {
				var names []string
				matches := false
				for _, t := range c.out.Tensors {
					if t.Frozen {
						continue
					}
					matches = matches || g.Matches(string(t.Role), t.Name)
					names = append(names, t.Name)
				}
				report(g.Table, g.Match, matches, "trained parameters", "an earlier group", names)
			}
		}
	}
	if len(problems) > 0 {
		return problems
	}
	return nil
}

func (c *collector) matched(o *config.Override) (names []string) {
	add := func(name string, roles ...string) {
		if slices.ContainsFunc(roles, func(role string) bool { return o.Matches(role, name) }) {
			names = append(names, name)
		}
	}
	for _, p := range c.Model.Params() {
		switch {
		case p.Quantized && p.Role == architecture.RoleMatrix:
			add(p.Name, roleOfWeight(p), config.RoleGradients, config.RoleBackward)
		case p.Quantized:
			add(p.Name, roleOfWeight(p))
		}
	}
	for _, s := range c.Model.ActivationSites(c.Batch, c.Config.Model.Context) {
		_, role := roleOfSite(s.Kind)
		if s.Kind == model.KindInput {
			add(s.Name, role, config.RoleBackward)
		} else {
			add(s.Name, role)
		}
	}
	return names
}

func distinctNames(names []string) (list []string) {
	seen := map[string]bool{}
	for _, name := range names {
		pattern := name
		if layer := architecture.LayerOf(name); layer >= 0 {
			pattern = strings.TrimPrefix(name, architecture.LayerPrefix(layer))
		}
		if !seen[pattern] {
			seen[pattern] = true
			list = append(list, name)
		}
	}
	return list
}
