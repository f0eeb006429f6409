package train

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"github.com/cage-qat/cage/host/checkpoint"
	"github.com/cage-qat/cage/host/metrics"
	"github.com/cage-qat/cage/host/safetensors"
)

// Difference is a part of a state in which two checkpoints differ.
type Difference struct {
	Name string `json:"name"` // of a tensor, or of an entry of the metadata
	// Count of the Of numbers differ; 0 of 0 for what is no tensor, or has another
	// shape or is missing in one of the two.
	Count int `json:"count"`
	Of    int `json:"of"`
	// First is the place of the first one, and Largest the largest distance.
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
var comparedMeta = []string{refreshesKey, movementMeta}

// compareStates lists the differences between two states of one step, tensors first.
func compareStates(want, got checkpoint.State) ([]Difference, error) {
	list := []Difference{}
	tensors := map[string]safetensors.Tensor{}
	for _, t := range got.Tensors {
		tensors[t.Name] = t
	}
	for _, w := range want.Tensors {
		g, ok := tensors[w.Name]
		delete(tensors, w.Name)
		switch {
		case !ok || g.DType != w.DType || !slices.Equal(g.Shape, w.Shape):
			list = append(list, Difference{Name: w.Name})
		case !bytes.Equal(w.Data, g.Data):
			list = append(list, compareTensors(w, g))
		}
	}
	for name := range tensors {
		list = append(list, Difference{Name: name})
	}
	var a, b progress
	if err := want.Meta.Get("progress", &a); err != nil {
		return nil, err
	}
	if err := got.Meta.Get("progress", &b); err != nil {
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
func compareTensors(a, b safetensors.Tensor) Difference {
	size := a.DType.Size()
	d := Difference{Name: a.Name, Of: len(a.Data) / size}
	for i := range d.Of {
		if !bytes.Equal(a.Data[i*size:(i+1)*size], b.Data[i*size:(i+1)*size]) {
			if d.Count == 0 {
				d.First = position(i, a.Shape)
			}
			d.Count++
		}
	}
	x, errA := safetensors.Values[float32](a)
	y, errB := safetensors.Values[float32](b)
	if errA != nil || errB != nil {
		return d // whole numbers
	}
	largest := 0.0
	for i, v := range x {
		if math.Float32bits(v) != math.Float32bits(y[i]) {
			largest = max(largest, math.Abs(float64(v)-float64(y[i]))) // NaN prevails
		}
	}
	d.Largest = metrics.Some(largest)
	return d
}

// position is the place of the i-th number in a tensor of that shape.
func position(i int, shape []int) []int {
	at := make([]int, len(shape))
	for axis, n := range slices.Backward(shape) {
		at[axis], i = i%n, i/n
	}
	return at
}
