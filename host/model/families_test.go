package model_test

import (
	"testing"

	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// TestFamilies checks that each kind of language model has defaults, block parameters and a model.
func TestFamilies(t *testing.T) {
	for _, kind := range architecture.Languages {
		s := architecture.Settings{Kind: kind, Layers: 1, Width: 8, Heads: 2, Context: 4, Vocab: 10}
		if _, err := model.New(s, model.Options{}); err != nil {
			t.Error(err)
		}
		s.FillIn()
		if s.RopeTheta == 0 || s.RopePairs == "" || s.NormEps == 0 {
			t.Errorf("%s has no row in the table of families", kind)
		}
		if len(s.BlockParams(0)) == 0 {
			t.Errorf("%s: the blocks have no parameters", kind)
		}
		p, err := network.New(s, network.Shape{Batch: 1, Context: 4}, network.Quantizers{})
		if err == nil {
			if p, err = transform.Expand(p, nil, ""); err == nil {
				p, err = transform.Simplify(p)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		read := make([]bool, p.NumValues())
		for _, n := range p.Nodes {
			for _, arg := range n.Args {
				read[arg] = true
			}
		}
		for _, param := range s.Params() {
			if i := p.Input(param.Name); i < 0 || !read[i] {
				t.Errorf("%s: the program does not read %s", kind, param.Name)
			}
		}
	}
}
