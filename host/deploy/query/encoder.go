package query

import (
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/deploy/tasks"
	"github.com/cage-qat/cage/host/deploy/trained"
)

// Encoder says how the model's tokenizer begins and ends texts.
func Encoder(model *trained.Model) (*tasks.Encoder, tokenizer.Tokenizer, error) {
	tok, err := model.Tokenizer()
	if err != nil {
		return nil, nil, err
	}
	info := tok.Info()
	e := &tasks.Encoder{Encode: tok.Encode, BOS: info.BOS, Prefix: info.BOS, Context: model.Context()}
	if !tokenizer.AddsBOS(tok) {
		e.BOS = -1
	}
	if e.Prefix < 0 {
		e.Prefix = info.EOS
	}
	if info.EOS >= 0 {
		e.EOS, err = tok.Decode([]int32{info.EOS})
	}
	return e, tok, err
}
