package sdk

import (
	"errors"
	"fmt"
)

// Kind is what a plugin is: a quantizer or an optimizer.
type Kind string

// The kinds of plugins.
const (
	KindQuantizer Kind = "quantizer"
	KindOptimizer Kind = "optimizer"
)

// SiteError is a plugin's failure to write the program for one site or tensor.
type SiteError struct {
	Kind   Kind
	Plugin string
	Site   string
	Err    error
}

// Error names the plugin, the site and the cause.
func (e *SiteError) Error() string {
	return fmt.Sprintf("%s %s: %s: %v", e.Kind, e.Plugin, e.Site, e.Err)
}

// Unwrap returns the cause.
func (e *SiteError) Unwrap() error { return e.Err }

// ParameterError is a setting that a plugin does not accept.
type ParameterError struct {
	Plugin string
	Name   string
	// Known tells a declared parameter with a wrong value from an unknown name.
	Known bool
	Err   error
}

// Error names the plugin, the parameter and what would be right.
func (e *ParameterError) Error() string {
	return fmt.Sprintf("plugin %s: parameter %s: %v", e.Plugin, e.Name, e.Err)
}

// Unwrap returns the cause.
func (e *ParameterError) Unwrap() error { return e.Err }

func joinErrors(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// recovered turns a panic of the author's code into an error.
func recovered(err *error, kind, plugin, site string) {
	if r := recover(); r != nil {
		*err = &SiteError{Kind: Kind(kind), Plugin: plugin, Site: site, Err: fmt.Errorf("panic: %v", r)}
	}
}
