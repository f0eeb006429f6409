package huggingface_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/cage-qat/cage/host/huggingface"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/safetensors"
)

// TestLayout: the rows that Layout names are those that Tensors writes.
func TestLayout(t *testing.T) {
	for _, kind := range model.Languages {
		for _, pairs := range []model.Pairing{model.Interleaved, model.HalfSplit} {
			s := model.Settings{Kind: kind, Layers: 2, Width: 16, Heads: 4, KVHeads: 2, HeadSize: 4, Hidden: 8, Vocab: 5, Context: 4, RopePairs: pairs}
			s.FillIn()
			read := func(string) ([]float32, error) { // every element is its place
				values := make([]float32, 16*16*4)
				for i := range values {
					values[i] = float32(i)
				}
				return values, nil
			}
			places, err := huggingface.Layout(s)
			if err != nil {
				t.Fatal(err)
			}
			exact := func(param string) ([]float32, error) {
				for _, p := range places {
					if p.Param.Name == param {
						values, err := read(param)
						return values[:p.Param.Size()], err
					}
				}
				t.Fatalf("%s has no place", param)
				return nil, nil
			}
			tensors, err := huggingface.Tensors(s, safetensors.F32, exact)
			if err != nil || len(tensors) != len(places) {
				t.Fatalf("%d tensors, %d places, error %v", len(tensors), len(places), err)
			}
			for i, tensor := range tensors {
				comparePlace(t, tensor, places[i])
			}
		}
	}
}

func comparePlace(t *testing.T, tensor safetensors.Tensor, p huggingface.Place) {
	t.Helper()
	data, err := tensor.Bytes()
	if err != nil || tensor.Name != p.Tensor {
		t.Fatalf("%s stands where %s should, error %v", p.Tensor, tensor.Name, err)
	}
	columns := p.Param.Size() / p.Param.Dims[0]
	for i, row := range p.Rows {
		if got := math.Float32frombits(binary.LittleEndian.Uint32(data[i*columns*4:])); int(got) != row*columns {
			t.Fatalf("%s: row %d is row %v, Layout says %d", p.Tensor, i, got/float32(columns), row)
		}
	}
	if len(data) != len(p.Rows)*columns*4 {
		t.Errorf("%s: %d bytes for %d rows", p.Tensor, len(data), len(p.Rows))
	}
}
