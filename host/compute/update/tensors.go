package update

import (
	"fmt"

	"github.com/cage-qat/cage/host/compute/engine"
)

// Tensors holds buffers on a device, by name.
type Tensors map[string]*engine.Buffer

// Finalize frees the buffers.
func (t Tensors) Finalize() {
	for _, b := range t {
		b.Finalize()
	}
}

// Scalars holds the scalar inputs, which all programs share, by the names of the programs' inputs.
type Scalars map[string]float32

// Vector returns the named scalars in the order of the names, or an error if one is missing.
func (s Scalars) Vector(names ...string) ([]float32, error) {
	values := make([]float32, len(names))
	for i, name := range names {
		v, ok := s[name]
		if !ok {
			return nil, fmt.Errorf("the scalar %s is missing", name)
		}
		values[i] = v
	}
	return values, nil
}

// Measures holds the scalars that programs report to the host, by the name of the program's output,
// then by the job's tensor.
type Measures map[string]map[string]float64

func (m Measures) set(name, tensor string, value float32) {
	if m[name] == nil {
		m[name] = map[string]float64{}
	}
	m[name][tensor] = float64(value)
}
