//go:build !linux || !(amd64 || arm64)

package syscallfault

import "context"

// Launch does nothing on this system.
func Launch() {}

// Supported returns [ErrUnsupported], because this system has no seccomp notifications.
func Supported(context.Context) error { return ErrUnsupported }

// Run returns [ErrUnsupported].
func Run(context.Context, Command, func(Call) Decision) (Report, error) {
	return Report{}, ErrUnsupported
}
