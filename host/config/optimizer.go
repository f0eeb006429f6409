package config

import "slices"

// Optimizer is the partition of the parameters among optimizers: those of a group
// have the group's; the others the main one, which is the embedded Plugin, or Rest
// where the main one is not meant for them.
type Optimizer struct {
	Plugin
	Rest   *Plugin // for the tensors that the main optimizer does not accept; never nil
	Groups []Group // the first that matches wins
	// RefreshDelay and RestRefreshDelay are the updates by which refreshes of the
	// main optimizer and of Rest take effect late; see [Optimizer.Delay].
	RefreshDelay, RestRefreshDelay int
}

// Group is a part of the parameters with settings of its own. A tensor belongs to
// it when both its name and its role do.
type Group struct {
	Table string   // where it was configured, such as "optimizer.groups[0]", for [Config.ErrorAt]
	Match []string // patterns of names of parameters
	Roles []string // roles as package sdk calls them: "matrix", "vector", "embedding", "head"
	// Plugin is the optimizer; nil: as without the group, the main one or Rest.
	Plugin *Plugin
	Rate   float64 // factor of the learning rate
	// WeightDecay is that of all tensors of the group; nil: train.weight_decay for
	// those that the model decays.
	WeightDecay *float64
	// RefreshDelay is that of all tensors of the group; nil: see [Optimizer.Delay].
	RefreshDelay *int
}

// Matches reports whether a tensor of that role and name belongs to the group.
func (g *Group) Matches(role, name string) bool {
	return slices.Contains(g.Roles, role) && matchesAny(g.Match, name)
}

// Group returns the group of a tensor of that role and name; nil when it is in none.
// A group that is never returned for the parameters of a model has no effect.
func (o *Optimizer) Group(role, name string) *Group {
	for i := range o.Groups {
		if g := &o.Groups[i]; g.Matches(role, name) {
			return g
		}
	}
	return nil
}

// Delay returns the updates by which refreshes of a tensor take effect late, and the
// full dotted key that says so. The tensor is in group g, nil for none, and its
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
	return updates, JoinKey(table, "refresh_delay")
}

// RestGiven tells whether Rest is something else than what it is unless configured.
func (o *Optimizer) RestGiven() bool {
	return o.Rest.Name != defaultOptimizer || o.Rest.SHA256 != "" || len(o.Rest.Params) > 0
}

// Plugins lists the plugins of all tables: the main one, Rest, those of groups.
func (o *Optimizer) Plugins() []*Plugin {
	all := present(&o.Plugin, o.Rest)
	for _, g := range o.Groups {
		all = append(all, present(g.Plugin)...)
	}
	return all
}
