package engine

import (
	"fmt"
	"reflect"

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

// setParallelism sets the size of the backend's pool of workers. The backend's configuration string can say the same
// ("parallelism=-1"), but the backend then prints a line on standard output, where a command with machine-readable
// output must not print. The exported field Workers leads to the same setter; its type is internal to the backend's
// module, hence the reflection.
func setParallelism(backend compute.Backend, n int) error {
	workers := reflect.Indirect(reflect.ValueOf(backend)).FieldByName("Workers")
	if !workers.IsValid() {
		return fmt.Errorf("the Go backend %T has no pool of workers to configure", backend)
	}
	set, ok := workers.Interface().(interface{ SetMaxParallelism(int) })
	if !ok {
		return fmt.Errorf("the Go backend's pool of workers %s has no SetMaxParallelism", workers.Type())
	}
	set.SetMaxParallelism(n)
	return nil
}
