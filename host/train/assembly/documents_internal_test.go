package assembly

import (
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/model"
)

// TestSeparate: documents begin at begin tokens and behind end tokens; their first tokens are
// nobody's target.
func TestSeparate(t *testing.T) {
	const context = 7
	for name, c := range map[string]struct {
		info              tokenizer.Info
		segments, targets []int32
	}{
		"begin":           {tokenizer.Info{BOS: 1, EOS: tokenizer.NoToken}, []int32{0, 0, 0, 1, 1, 1, 2, 2}, []int32{1, 1, 0, 1, 1, 0, 1}},
		"end":             {tokenizer.Info{BOS: tokenizer.NoToken, EOS: 2}, []int32{0, 0, 0, 1, 1, 1, 2, 2}, []int32{1, 1, 0, 1, 1, 0, 1}},
		"begin and end":   {tokenizer.Info{BOS: 1, EOS: 2}, []int32{0, 0, 0, 1, 1, 1, 2, 2}, []int32{1, 1, 0, 1, 1, 0, 1}},
		"the same token":  {tokenizer.Info{BOS: 1, EOS: 1}, []int32{0, 0, 0, 1, 1, 1, 2, 2}, []int32{1, 1, 0, 1, 1, 0, 1}},
		"neither of them": {tokenizer.Info{BOS: tokenizer.NoToken, EOS: tokenizer.NoToken}, make([]int32, 8), []int32{1, 1, 1, 1, 1, 1, 1}},
	} {
		dst := make([]int32, model.Planes*(context+1))
		tokens := []int32{7, 8, 2, 1, 9, 2, 1, 7}
		separate(dst, tokens, context, c.info)
		row := model.DocumentRows(dst, context)[0]
		var targets []int32
		for place := 1; place <= context; place++ {
			targets = append(targets, int32(row.Weight(place)))
		}
		if !slices.Equal(row.Tokens, tokens) || !slices.Equal(row.Segments, c.segments) || !slices.Equal(targets, c.targets) {
			t.Errorf("%s: tokens %v, segments %v, targets %v", name, row.Tokens, row.Segments, targets)
		}
	}
}
