package checkpoint

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/model/safetensors"
)

// No run can go on from a state whose numbers are not finite: each of its steps is NaN. So the last
// checkpoint that is finite is neither removed nor passed over, however many that are not follow
// it.

// ErrNotFinite is wrapped by the error about a checkpoint that was passed over because it is not
// finite.
var ErrNotFinite = errors.New("the state is not finite")

// finiteKey is the entry of the metadata that says whether the state is finite, as true or false.
// This is known when the tensors have been written, and must not change the length of the header.
const (
	finiteKey = "finite"
	isFinite  = "true " // JSON
	notFinite = "false"
)

// Finite reports whether the parameters, under param/, are finite and no state of an optimizer or a
// quantizer, under state/ and kept/, is NaN. Where the metadata does not say it, the tensors are
// read.
func (f *File) Finite() (bool, error) {
	if f.finite != nil {
		return *f.finite, nil
	}
	finite := true
	for _, t := range watched(f.Tensors, func() { finite = false }) {
		if limit(t) == 0 {
			continue
		}
		if err := t.Write(io.Discard); err != nil {
			return false, err
		}
	}
	f.finite = &finite
	return finite, nil
}

// watched are tensors that call found when they are written and their numbers are not finite.
func watched(list []safetensors.Tensor, found func()) []safetensors.Tensor {
	list = slices.Clone(list)
	for i, t := range list {
		if limit := limit(t); limit > 0 {
			list[i].Write = func(w io.Writer) error {
				return t.Write(io.MultiWriter(watcher{t.DType, limit, found}, w))
			}
		}
	}
	return list
}

// infinity has the bits of the number; those of NaN are larger, but for the sign.
var infinity = math.Float32bits(float32(math.Inf(1)))

// limit is the smallest number, in the bits of a float32, that a tensor must not have; 0: it may
// have any.
func limit(t safetensors.Tensor) uint32 {
	kind, _, _ := strings.Cut(t.Name, "/")
	switch {
	case t.DType != safetensors.F32 && t.DType != safetensors.BF16:
		return 0
	case kind == "param":
		return infinity
	case kind == "state" || kind == "kept": // infinity may be a bound that is not yet known
		return infinity + 1
	}
	return 0
}

// watcher looks at the numbers that are written to it.
type watcher struct {
	dtype safetensors.DType
	limit uint32
	found func()
}

func (w watcher) Write(data []byte) (int, error) {
	largest := uint32(0)
	if w.dtype == safetensors.F32 {
		for at := 0; at+4 <= len(data); at += 4 {
			largest = max(largest, binary.LittleEndian.Uint32(data[at:])<<1)
		}
	} else {
		for at := 0; at+2 <= len(data); at += 2 {
			largest = max(largest, uint32(binary.LittleEndian.Uint16(data[at:]))<<17)
		}
	}
	if largest>>1 >= w.limit {
		w.found()
	}
	return len(data), nil
}
