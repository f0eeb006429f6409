package huggingface

import (
	"github.com/cage-qat/cage/host/model/architecture"
)

// A Place is where a Hugging Face checkpoint stores a parameter of a model, or some rows
// of it.
type Place struct {
	Tensor string
	Param  architecture.Param
	Rows   []int // rows of the parameter, in the order of the tensor's rows
}

// Layout lists the tensors of a model and where their contents come from, in the order of
// the parameters.
func Layout(s architecture.Settings) ([]Place, error) {
	f, err := familyOf(s.Kind)
	if err != nil {
		return nil, err
	}
	s.FillIn()
	bindings, err := f.bind(s)
	if err != nil {
		return nil, err
	}
	var list []Place
	for _, b := range bindings {
		at := 0
		for _, p := range b.pieces {
			place := Place{Tensor: p.tensor, Param: b.param}
			for i := range p.dims[0] {
				place.Rows = append(place.Rows, at+i)
			}
			if p.turned {
				place.Rows = architecture.Reorder(place.Rows, s.HeadSize, s.RopePairs, architecture.HalfSplit)
			}
			at += p.dims[0]
			list = append(list, place)
		}
	}
	return list, nil
}
