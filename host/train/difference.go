package train

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/provenance"
)

// Difference describes a part of a state, a tensor or a metadata entry, that differs
// between two checkpoints.
type Difference struct {
	Name string `json:"name"` // of a tensor, or of an entry of the metadata
	// Count is how many of the tensor's Of numbers differ. Both are 0 for a metadata
	// entry, and for a tensor whose shape differs or that one of the two lacks.
	Count int `json:"count"`
	Of    int `json:"of"`
	// First is the position of the first number that differs. Largest is the largest
	// absolute difference; nil unless the tensor is float32.
	First   []int           `json:"first,omitempty"`
	Largest *metrics.Number `json:"largest,omitempty"`
}

func (d Difference) String() string {
	if d.Count == 0 {
		return d.Name + " differs"
	}
	text := fmt.Sprintf("%s differs in %d of %d numbers, first at %v", d.Name, d.Count, d.Of, d.First)
	if d.Largest != nil {
		text += fmt.Sprintf(", by at most %g", float64(*d.Largest))
	}
	return text
}

// comparedMeta are the entries of the metadata, beside progress, that follow from the
// steps done.
var comparedMeta = []string{refreshesKey, failuresKey, movementMeta}

// compareStates lists the differences between two states of one step, tensors first. It
// reads one tensor of each at a time.
func compareStates(want, got checkpoint.State) ([]Difference, error) {
	list := []Difference{}
	tensors := map[string]safetensors.Tensor{}
	for _, t := range got.Tensors {
		tensors[t.Name] = t
	}
	for _, w := range want.Tensors {
		g, ok := tensors[w.Name]
		delete(tensors, w.Name)
		if !ok || g.DType != w.DType || !slices.Equal(g.Shape, w.Shape) {
			list = append(list, Difference{Name: w.Name})
			continue
		}
		d, err := compareTensors(w, g)
		if err != nil {
			return nil, err
		}
		if d.Count > 0 {
			list = append(list, d)
		}
	}
	for name := range tensors {
		list = append(list, Difference{Name: name})
	}
	var a, b provenance.Progress
	if err := want.Meta.Get(provenance.ProgressKey, &a); err != nil {
		return nil, err
	}
	if err := got.Meta.Get(provenance.ProgressKey, &b); err != nil {
		return nil, err
	}
	a.Seconds, b.Seconds = 0, 0
	if a != b {
		list = append(list, Difference{Name: "progress"})
	}
	for _, key := range comparedMeta {
		if want.Meta[key] != got.Meta[key] {
			list = append(list, Difference{Name: key})
		}
	}
	return list, nil
}

// compareTensors describes the difference of two tensors of one type and shape.
func compareTensors(x, y safetensors.Tensor) (Difference, error) {
	a, errA := x.Bytes()
	b, errB := y.Bytes()
	size := max(1, x.DType.Bits()/8)
	d := Difference{Name: x.Name, Of: len(a) / size}
	if err := errors.Join(errA, errB); err != nil || bytes.Equal(a, b) {
		return d, err
	}
	largest := 0.0
	for i := range d.Of {
		v, w := a[i*size:(i+1)*size], b[i*size:(i+1)*size]
		if bytes.Equal(v, w) {
			continue
		}
		if d.Count == 0 {
			d.First = position(i, x.Shape)
		}
		d.Count++
		if x.DType == safetensors.F32 {
			largest = max(largest, math.Abs(float32At(v)-float32At(w))) // NaN prevails
		}
	}
	if x.DType == safetensors.F32 { // integers are codes and counts, whose difference means little
		d.Largest = metrics.Some(largest)
	}
	return d, nil
}

func float32At(data []byte) float64 {
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(data)))
}

// position is the index of the i-th number along each axis of a tensor of that shape.
func position(i int, shape []int) []int {
	at := make([]int, len(shape))
	for axis, n := range slices.Backward(shape) {
		at[axis], i = i%n, i/n
	}
	return at
}
