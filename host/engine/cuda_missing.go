//go:build !cuda

package engine

import (
	"errors"

	"github.com/gomlx/compute"
)

const builtCUDA = false

// openCUDA explains how to get a build that can.
func openCUDA(Options) (compute.Backend, error) {
	return nil, errors.New("this build has no CUDA support: it needs cgo and a C compiler, and is built with " +
		"`go build -tags cuda ./cmd/cage`; at run time it needs an NVIDIA driver and the PJRT plugin that " +
		"`pip install \"jax[cuda13]\"` brings")
}
