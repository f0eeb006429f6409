package config

import (
	"slices"

	"github.com/cage-qat/cage/internal/plaintoml"
)

// Optimizer says which optimizer trains which parameters. Parameters in a group have the
// group's optimizer. All others have the main one, which is the embedded Plugin, or Rest
// if the main one does not accept them.
type Optimizer struct {
	Plugin
	Rest   *Plugin // for the tensors that the main optimizer does not accept; never nil
	Groups []Group // the first group that matches applies
	// RefreshDelay and RestRefreshDelay say how many updates late the refreshes of the
	// main optimizer and of Rest take effect; see [Optimizer.Delay].
	RefreshDelay, RestRefreshDelay int
}

// Group is a set of parameters with settings of its own. A tensor belongs to it if both
// its name and its role match.
type Group struct {
	Table string   // where it was configured, such as "optimizer.groups[0]", for [Config.ErrorAt]
	Match []string // patterns of names of parameters
	Roles []string // roles as package sdk calls them: "matrix", "vector", "embedding", "head"
	// Plugin is the optimizer; nil means the one used without the group: the main one or
	// Rest.
	Plugin *Plugin
	Rate   float64 // factor on the learning rate
	// WeightDecay applies to all tensors of the group; nil means train.weight_decay for
	// those that the model decays.
	WeightDecay *float64
	// RefreshDelay applies to all tensors of the group; nil: see [Optimizer.Delay].
	RefreshDelay *int
}

// Matches reports whether a tensor with this role and name belongs to the group.
func (g *Group) Matches(role, name string) bool {
	return slices.Contains(g.Roles, role) && matchesAny(g.Match, name)
}

// Group returns the group of a tensor with this role and name; nil if it is in none. A
// group that is never returned for the parameters of a model has no effect.
func (o *Optimizer) Group(role, name string) *Group {
	for i := range o.Groups {
		if g := &o.Groups[i]; g.Matches(role, name) {
			return g
		}
	}
	return nil
}

// Delay returns how many updates late the refreshes of a tensor take effect, and the full
// dotted key that says so. The tensor is in group g (nil if it is in none), and its
// optimizer is p, one of Plugins.
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

// Plugins lists the plugins of all tables: the main one, Rest, and those of groups.
func (o *Optimizer) Plugins() []*Plugin {
	all := present(&o.Plugin, o.Rest)
	for _, g := range o.Groups {
		all = append(all, present(g.Plugin)...)
	}
	return all
}
