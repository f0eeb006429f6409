package engine

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/compute/gobackend"
)

// openCPU makes GoMLX's Go backend.
func openCPU(opts Options) (compute.Backend, error) {
	backend, err := gobackend.New("")
	if err != nil {
		return nil, err
	}
	threads := opts.Threads
	if threads == 0 {
		threads = -1 // What the backend calls unlimited; its own default is a limited pool, which is slower.
	}
	if err := setParallelism(backend, threads); err != nil {
		return nil, err
	}
	return backend, nil
}
