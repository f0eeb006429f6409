package main

import (
	"math"

	"github.com/cage-qat/cage/sdk"
)

// listing is a plugin as printed in JSON.
type listing struct {
	Name       string      `json:"name"`
	Path       string      `json:"path"`
	Kind       sdk.Kind    `json:"kind,omitempty"`
	Version    string      `json:"version,omitempty"`
	Doc        string      `json:"doc,omitempty"`
	Parameters []parameter `json:"parameters,omitempty"`
	Error      string      `json:"error,omitempty"`
}

// parameter is a parameter of a plugin as printed in JSON, which knows no infinity:
// an open side has no bound.
type parameter struct {
	Name    string   `json:"name"`
	Type    sdk.Type `json:"type"`
	Default any      `json:"default"`
	Min     *float64 `json:"min,omitempty"`
	Max     *float64 `json:"max,omitempty"`
	Choices []string `json:"choices,omitempty"`
	Doc     string   `json:"doc"`
}

// describe fills in what a plugin says of itself.
func (l listing) describe(d sdk.Description) listing {
	l.Version, l.Doc = d.Version, d.Doc
	for _, p := range d.Parameters {
		out := parameter{Name: p.Name, Type: p.Type, Default: p.Default, Choices: p.Choices, Doc: p.Doc}
		if p.Type == sdk.TypeInt || p.Type == sdk.TypeFloat {
			out.Min, out.Max = bound(p.Min), bound(p.Max)
		}
		l.Parameters = append(l.Parameters, out)
	}
	return l
}

func bound(v float64) *float64 {
	if math.IsInf(v, 0) {
		return nil
	}
	return &v
}
