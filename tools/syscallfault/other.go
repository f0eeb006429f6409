//go:build !linux || !(amd64 || arm64)

package syscallfault

import "context"

// Launch does nothing on this system.
func Launch() {}

// Supported returns [ErrUnsupported]: this system has no such notifications.
func Supported(context.Context) error { return ErrUnsupported }

// Run fails with [ErrUnsupported].
func Run(context.Context, Command, func(Call) Decision) (Report, error) {
	return Report{}, ErrUnsupported
}
