package model_test

import (
	"testing"

	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
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
	}
}
