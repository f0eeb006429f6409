package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/plaintoml"
)

// Plugin names a plugin and its parameters. This package does not check the parameters, because
// only the plugin declares which ones are valid.
type Plugin struct {
	Table  string // table that configures it, such as "quantizer.weights"
	Name   string // name, or a path if it contains a slash
	SHA256 string // expected hash in lower-case hexadecimal; "": any
	// Params holds the parameters as int64, float64, string or bool. Integers are not converted,
	// even if the plugin declares a float.
	Params map[string]any
}

// Path returns the full dotted key of a parameter, for [Config.ErrorAt].
func (p *Plugin) Path(key string) string { return plaintoml.JoinKey(p.Table, key) }

func (p *Plugin) copy() *Plugin {
	if p == nil {
		return nil
	}
	other := *p
	other.Params = maps.Clone(p.Params)
	return &other
}

// same reports whether p and q are equal except for their tables.
func (p *Plugin) same(q *Plugin) bool {
	if p == nil || q == nil {
		return p == q
	}
	return p.Name == q.Name && p.SHA256 == q.SHA256 && reflect.DeepEqual(p.Params, q.Params)
}

// Roles of quantizers, which select the kinds of tensors that a quantizer is applied to.
const (
	RoleWeights     = "weights"
	RoleActivations = "activations"
	roleBoth        = "both" // weights and activations
	roleAll         = "all"  // every operand
	// The matrix products of the backward pass have the gradient of a linear layer's output as one
	// operand (RoleGradients), and the layer's input or weight as the other (RoleBackward).
	RoleGradients = "gradients"
	RoleBackward  = "backward"
	// RoleKeys, RoleValues and RoleQueries are for the operands of attention, RoleHead is for the
	// weight and the input of the output head.
	RoleKeys    = "keys"
	RoleValues  = "values"
	RoleQueries = "queries"
	RoleHead    = "head"
)

// ownRoles are the roles that [quantizer] does not include, in schema order.
var ownRoles = []string{RoleKeys, RoleValues, RoleQueries, RoleHead, RoleGradients, RoleBackward}

// Quantizer holds the plugin for each role; nil leaves the role unquantized. Overrides take
// precedence; see [Quantizer.For].
type Quantizer struct {
	Weights     *Plugin
	Activations *Plugin

	// The following roles of language models are nil unless they have their own tables.
	Keys, Values, Queries *Plugin
	Head                  *Plugin // the weight and the input of the output head
	Gradients, Backward   *Plugin // training only: see RoleGradients, RoleBackward

	Overrides []Override // the last match applies
	// Unused is the plugin in [quantizer] if weights and activations have their own tables, so that
	// mistakes in it are reported; otherwise nil.
	Unused *Plugin
}

// Override replaces or disables the quantizer of some parameters and sites.
type Override struct {
	Table  string   // its table, such as "quantizer.overrides[0]", for [Config.ErrorAt]
	Match  []string // patterns of names of parameters (weights, gradients) or sites; nil: all
	Layers []int    // indices of transformer blocks, from 0; nil: any block, or none
	Role   string   // one of the roles, or "both" for RoleWeights and RoleActivations, or "all"
	Plugin *Plugin  // nil: unquantized
}

// About reports whether the override applies to a role.
func (o *Override) About(role string) bool {
	both := o.Role == roleBoth && (role == RoleWeights || role == RoleActivations)
	return both || o.Role == roleAll || o.Role == role
}

// Matches reports whether the override applies to the named parameter or site in a role.
func (o *Override) Matches(role, name string) bool {
	return o.About(role) && (o.Match == nil || matchesAny(o.Match, name)) &&
		(o.Layers == nil || slices.Contains(o.Layers, architecture.LayerOf(name)))
}

func (o *Override) forward() bool { return o.Role != RoleGradients && o.Role != RoleBackward }

// For returns the quantizer for the named parameter or site in a role, or nil if it is not
// quantized. The name of a gradient is that of its layer's weight. RoleBackward and RoleHead apply
// to both parameters and sites.
func (q *Quantizer) For(role, name string) *Plugin {
	if o := q.Override(role, name); o != nil {
		return o.Plugin
	}
	return *q.role(role)
}

func (q *Quantizer) role(role string) **Plugin {
	switch role {
	case RoleWeights:
		return &q.Weights
	case RoleKeys:
		return &q.Keys
	case RoleValues:
		return &q.Values
	case RoleQueries:
		return &q.Queries
	case RoleHead:
		return &q.Head
	case RoleGradients:
		return &q.Gradients
	case RoleBackward:
		return &q.Backward
	}
	return &q.Activations
}

// Quantizes reports whether any table or override configures a quantizer for a role.
func (q *Quantizer) Quantizes(role string) bool {
	return *q.role(role) != nil || slices.ContainsFunc(q.Overrides, func(o Override) bool {
		return o.About(role) && o.Plugin != nil
	})
}

// Override returns the override that applies to the named parameter or site in a role, or nil if
// none matches. An override that is never returned for a model has no effect.
func (q *Quantizer) Override(role, name string) *Override {
	for i := len(q.Overrides) - 1; i >= 0; i-- {
		if o := &q.Overrides[i]; o.Matches(role, name) {
			return o
		}
	}
	return nil
}

// Plugins lists the plugins of all tables in schema order.
func (q *Quantizer) Plugins() []*Plugin {
	all := present(q.Weights, q.Activations,
		q.Keys, q.Values, q.Queries, q.Head, q.Gradients, q.Backward)
	for _, o := range q.Overrides {
		all = append(all, present(o.Plugin)...)
	}
	return all
}

// Forward returns a copy of q without the roles of the backward pass.
func (q *Quantizer) Forward() *Quantizer {
	f := *q
	f.Gradients, f.Backward = nil, nil
	f.Overrides = slices.DeleteFunc(slices.Clone(q.Overrides), func(o Override) bool {
		return !o.forward()
	})
	return &f
}

// WithoutWeights returns a copy of q for evaluation that does not quantize the weights of blocks.
func (q *Quantizer) WithoutWeights() *Quantizer {
	f := *q.Forward()
	f.Weights = nil
	f.Overrides = nil
	for _, o := range q.Overrides {
		for _, role := range slices.Concat([]string{RoleActivations}, ownRoles) {
			one := o
			if one.Role = role; o.About(role) && one.forward() && q.Quantizes(role) {
				f.Overrides = append(f.Overrides, one)
			}
		}
	}
	return &f
}

func (q *Quantizer) quantizesWeights() bool {
	return q.Quantizes(RoleWeights) || q.Quantizes(RoleHead)
}

func present(plugins ...*Plugin) []*Plugin {
	return slices.DeleteFunc(plugins, func(p *Plugin) bool { return p == nil })
}

// Optimizer assigns optimizers to parameters. Parameters in a group with its own optimizer have
// that one. All others have the main one, which is the embedded Plugin, or Rest if the main one
// does not accept them.
type Optimizer struct {
	Plugin
	Rest   *Plugin // for the tensors that the main optimizer does not accept; never nil
	Groups []Group // the first match applies
	// RefreshDelay and RestRefreshDelay are the numbers of updates by which refreshes of the main
	// optimizer and of Rest are delayed; see [Optimizer.Delay].
	RefreshDelay, RestRefreshDelay int
}

// Group is a set of parameters with their own settings: those with a matching name and role.
type Group struct {
	Table string   // table that configures it, such as "optimizer.groups[0]", for [Config.ErrorAt]
	Match []string // patterns of parameter names
	Roles []string // roles, named as in package sdk: "matrix", "vector", "embedding", "head"
	// Plugin is the group's own optimizer; nil means the main one or Rest.
	Plugin *Plugin
	Rate   float64 // factor on the learning rate
	// WeightDecay applies to all tensors in the group; nil means train.weight_decay for those that
	// have weight decay in the model.
	WeightDecay *float64
	// RefreshDelay applies to all tensors in the group; if it is nil, see [Optimizer.Delay].
	RefreshDelay *int
}

// Matches reports whether a tensor belongs to the group.
func (g *Group) Matches(role, name string) bool {
	return slices.Contains(g.Roles, role) && matchesAny(g.Match, name)
}

// Group returns the first group that a tensor belongs to, or nil if there is none. A group that is
// never returned for a model's parameters has no effect.
func (o *Optimizer) Group(role, name string) *Group {
	for i := range o.Groups {
		if g := &o.Groups[i]; g.Matches(role, name) {
			return g
		}
	}
	return nil
}

// Delay returns the number of updates by which a tensor's refreshes are delayed, and the full
// dotted key of that setting. g is the tensor's group, or nil; p is its optimizer, one of
// o.Plugins.
func (o *Optimizer) Delay(g *Group, p *Plugin) (updates int, key string) {
	table := p.Table
	switch {
	case g != nil && g.RefreshDelay != nil:
		table, updates = g.Table, *g.RefreshDelay
	case p == &o.Plugin:
		updates = o.RefreshDelay
	case p == o.Rest:
		updates = o.RestRefreshDelay
	}
	return updates, plaintoml.JoinKey(table, "refresh_delay")
}

// RestGiven reports whether Rest differs from its default.
func (o *Optimizer) RestGiven() bool {
	return o.Rest.Name != defaultOptimizer || o.Rest.SHA256 != "" || len(o.Rest.Params) > 0
}

// Plugins lists the plugins of all tables: the main one, Rest, and those of the groups.
func (o *Optimizer) Plugins() []*Plugin {
	all := present(&o.Plugin, o.Rest)
	for _, g := range o.Groups {
		all = append(all, present(g.Plugin)...)
	}
	return all
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, name) })
}

// matches reports whether name matches pattern, in which * stands for any sequence of characters.
func matches(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(name) < len(first)+len(last) ||
		!strings.HasPrefix(name, first) || !strings.HasSuffix(name, last) {
		return false
	}
	name = name[len(first) : len(name)-len(last)]
	// Matching each part at its first occurrence leaves the most text for the following parts.
	for _, part := range parts[1 : len(parts)-1] {
		_, after, found := strings.Cut(name, part)
		if !found {
			return false
		}
		name = after
	}
	return true
}
