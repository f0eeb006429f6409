package main

import (
	"fmt"

	"github.com/cage-qat/cage/host/data/chat"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/deploy/tasks"
	"github.com/cage-qat/cage/host/deploy/trained"
)

// encoderOf says how the model's tokenizer begins and ends texts.
func encoderOf(model *trained.Model) (*tasks.Encoder, tokenizer.Tokenizer, error) {
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

// conversation renders turns with the model's own template.
func conversation(dir string, tok tokenizer.Tokenizer) (func([]tasks.Turn) (string, error), error) {
	template, err := chat.OpenTemplate("", dir, tokenizer.AddsBOS(tok))
	if err != nil {
		return nil, fmt.Errorf("--chat: %w", err)
	}
	return tasks.Rendered(template), nil
}
