//go:build !linux

package trap

import "context"

// Launch does nothing here.
func Launch() {}

// Supported tells that there is nothing of the kind here.
func Supported(context.Context) error { return ErrUnsupported }

// Run fails: there is nothing of the kind here.
func Run(context.Context, Command, func(Call) Decision) (Report, error) {
	return Report{}, ErrUnsupported
}
