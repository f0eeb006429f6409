package huggingface

import (
	"fmt"
	"strings"

	"github.com/cage-qat/cage/host/model/architecture"
)

// A binding is a parameter of a model with the tensors that hold it, whose rows stand one below the other.
type binding struct {
	param  architecture.Param
	pieces []piece
}

// A piece is a tensor that holds some rows of a parameter.
type piece struct {
	tensor string
	dims   []int
	turned bool // see source
}

// bind lists the parameters of a model with their tensors.
func (f family) bind(s architecture.Settings) ([]binding, error) {
	var list []binding
	for _, p := range s.Params() {
		pattern, block := blockPattern(p.Name)
		sources := f.tensors[pattern]
		if len(sources) != max(1, len(p.Parts)) {
			return nil, fmt.Errorf("%s: the parameter %s has no counterpart in the tensors of %s", s.Kind, p.Name, f.architecture)
		}
		b := binding{param: p}
		for i, from := range sources {
			dims := p.Dims
			if p.Parts != nil {
				dims = []int{p.Parts[i].Rows, p.Dims[1]}
			}
			b.pieces = append(b.pieces, piece{strings.Replace(from.tensor, "*", block, 1), dims, from.turned})
		}
		list = append(list, b)
	}
	return list, nil
}

// blockPattern replaces the number of a block in the name of a parameter by a star, and returns the
// number beside it.
func blockPattern(param string) (pattern, block string) {
	const prefix = "layers."
	rest, ok := strings.CutPrefix(param, prefix)
	if !ok {
		return param, ""
	}
	block, rest, _ = strings.Cut(rest, ".")
	return prefix + "*." + rest, block
}

// size is the number of elements.
func (p piece) size() int {
	n := 1
	for _, d := range p.dims {
		n *= d
	}
	return n
}
