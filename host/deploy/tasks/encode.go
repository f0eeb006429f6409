package tasks

import (
	"fmt"
	"strings"

	"github.com/cage-qat/cage/host/model/score"
)

// Encoder converts texts to tokens.
type Encoder struct {
	// Encode returns the ids of text. Special tokens written in the text are encoded as such; BOS is
	// not added.
	Encode func(text string) ([]int32, error)
	// BOS is the token that the tokenizer adds at the start of every text; −1 if there is none.
	BOS int32
	// Prefix precedes a continuation without context: BOS, or else EOS; −1 if the tokenizer has
	// neither.
	Prefix int32
	// Context is the model's context length; longer texts are divided into windows, and longer
	// choices are errors. 0 means no limit, and no texts.
	Context int
	// EOS is the text of the EOS token.
	EOS string
}

// text encodes a whole text, with BOS in front unless the text begins with it.
func (e *Encoder) text(s string) ([]int32, error) {
	ids, err := e.Encode(s)
	if err != nil || e.BOS < 0 || len(ids) > 0 && ids[0] == e.BOS {
		return ids, err
	}
	return append([]int32{e.BOS}, ids...), nil
}

// Pair encodes a context and its continuation as lm-eval does (lm_eval/api/model.py, _encode_pair):
// white space at the end of the context is moved to the continuation. Both are encoded together,
// and the ids are split at the length of the encoded context.
func (e *Encoder) Pair(context, continuation string) (before, after []int32, err error) {
	if context == "" { // the context is Prefix alone
		if after, err = e.Encode(continuation); err != nil {
			return nil, nil, err
		}
		if e.Prefix >= 0 {
			before = []int32{e.Prefix}
		}
		if len(after) > 0 && after[0] == e.Prefix {
			after = after[1:]
		}
		return before, after, checkPair(before, after, continuation)
	}
	end := len(strings.TrimRight(context, space))
	context, continuation = context[:end], context[end:]+continuation
	whole, err := e.text(context + continuation)
	if err != nil {
		return nil, nil, err
	}
	if before, err = e.text(context); err != nil {
		return nil, nil, err
	}
	n := min(len(before), len(whole))
	before, after = before[:n:n], whole[n:]
	if len(before) == 0 && e.Prefix >= 0 {
		before = []int32{e.Prefix}
	}
	return before, after, checkPair(before, after, continuation)
}

func checkPair(before, after []int32, continuation string) error {
	switch {
	case len(after) == 0:
		return fmt.Errorf("the continuation %q has no token of its own", continuation)
	case len(before) == 0:
		return fmt.Errorf("the continuation %q has no context, and the tokenizer has neither BOS nor EOS",
			continuation)
	}
	return nil
}

func (e *Encoder) windows(s string) (list []score.Request, err error) {
	ids, err := e.text(s)
	if err != nil {
		return nil, err
	}
	if e.Prefix < 0 {
		return nil, fmt.Errorf("the tokenizer has neither BOS nor EOS to put before a text")
	}
	if list = Windows(ids, e.Context, e.Prefix); len(list) == 0 {
		return nil, fmt.Errorf("the text has no tokens")
	}
	return list, nil
}

// Windows divides a text into windows of length targets, each of which is scored in a single
// forward pass, so that each token is scored once (lm_eval/utils.py, get_rolling_token_windows with
// one token of context). The context of the first window is prefix; that of the last window has as
// many tokens as fit.
func Windows(ids []int32, length int, prefix int32) []score.Request {
	if len(ids) == 0 || length < 1 {
		return nil
	}
	first := min(length, len(ids))
	list := []score.Request{{Context: []int32{prefix}, Continuation: ids[:first]}}
	for at := first; at < len(ids); at += length {
		end := min(at+length, len(ids))
		begin := max(0, end-length-1)
		list = append(list, score.Request{Context: ids[begin:at], Continuation: ids[at:end]})
	}
	return list
}
