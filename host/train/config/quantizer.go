package config

// The roles that a quantizer can have: what it is applied to.
const (
	RoleWeights     = "weights"
	RoleActivations = "activations"
	roleBoth        = "both"
)

// Quantizer holds the plugin for each role; nil leaves the role unquantized. If an
// override matches, its plugin is used instead: see For.
type Quantizer struct {
	Weights     *Plugin
	Activations *Plugin
	Overrides   []Override // the last override that matches applies
	// Unused is the plugin that [quantizer] names although both roles have tables of
	// their own. It is kept so that a mistake in it is found; otherwise it is nil.
	Unused *Plugin
}

// Override gives some parameters and sites another quantizer, or none.
type Override struct {
	Table  string   // where it was configured, such as "quantizer.overrides[0]", for [Config.ErrorAt]
	Match  []string // patterns of the names of parameters (weights) and sites (activations)
	Role   string   // RoleWeights, RoleActivations or "both"
	Plugin *Plugin  // nil: unquantized
}

// Matches reports whether the override applies to that name in that role (RoleWeights or
// RoleActivations).
func (o *Override) Matches(role, name string) bool {
	return (o.Role == roleBoth || o.Role == role) && matchesAny(o.Match, name)
}

// For returns the quantizer for the parameter (RoleWeights) or site (RoleActivations)
// with that name; nil leaves it unquantized.
func (q *Quantizer) For(role, name string) *Plugin {
	switch o := q.Override(role, name); {
	case o != nil:
		return o.Plugin
	case role == RoleWeights:
		return q.Weights
	default:
		return q.Activations
	}
}

// Override returns the override that applies to that name in that role; nil if none
// matches. An override that is never returned for the parameters and sites of a model has
// no effect.
func (q *Quantizer) Override(role, name string) *Override {
	for i := len(q.Overrides) - 1; i >= 0; i-- {
		if o := &q.Overrides[i]; o.Matches(role, name) {
			return o
		}
	}
	return nil
}

// Plugins lists the plugins of all tables in the order of the schema.
func (q *Quantizer) Plugins() []*Plugin {
	all := present(q.Weights, q.Activations)
	for _, o := range q.Overrides {
		all = append(all, present(o.Plugin)...)
	}
	return all
}

// quantizesWeights reports whether some table names a quantizer of weights.
func (q *Quantizer) quantizesWeights() bool {
	for _, o := range q.Overrides {
		if o.Plugin != nil && o.Role != RoleActivations {
			return true
		}
	}
	return q.Weights != nil
}

func present(plugins ...*Plugin) []*Plugin {
	var all []*Plugin
	for _, p := range plugins {
		if p != nil {
			all = append(all, p)
		}
	}
	return all
}
