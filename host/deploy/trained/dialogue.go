package trained

import (
	"context"

	"github.com/cage-qat/cage/host/data/chat"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/model/generate"
)

// Dialogue is a conversation with a model.
type Dialogue struct {
	model    *Model
	tok      tokenizer.Tokenizer
	template *chat.Template
	options  generate.Options
	until    []string // strings that end an answer
	messages chat.Conversation
}

// NewDialogue starts a conversation with a model. It uses the given chat template (a name or a
// file) or, if that is empty, the model's own, and the system message unless it is empty.
func NewDialogue(model *Model, template, system string, o generate.Options) (*Dialogue, error) {
	d := &Dialogue{model: model, options: o}
	var err error
	if d.tok, err = model.Tokenizer(); err != nil {
		return nil, err
	}
	if d.template, err = chat.OpenTemplate(template, model.Dir, tokenizer.AddsBOS(d.tok)); err != nil {
		return nil, err
	}
	if system != "" {
		d.messages = append(d.messages, chat.NewMessage(chat.System, system))
	}
	// An answer ends at any token that ends the model's texts, and at the end marker that the template
	// writes after an answer.
	end, err := d.template.Ending(d.tok, d.messages)
	if err != nil {
		return nil, err
	}
	d.options.Stop = d.model.Ends(d.tok)
	if end.Token != tokenizer.NoToken {
		d.options.Stop = append(d.options.Stop, end.Token)
	} else if end.Text != "" {
		d.until = append(d.until, end.Text)
	}
	return d, nil
}

// Answer appends a message and the model's answer to the conversation. It calls show repeatedly,
// with the answer so far.
func (d *Dialogue) Answer(
	ctx context.Context, message string, show func(text string) error,
) (string, error) {
	d.messages = append(d.messages, chat.NewMessage(chat.User, message))
	r, err := d.template.Render(d.messages, true)
	if err != nil {
		return "", err
	}
	ids, err := d.tok.Encode(r.Text)
	if err != nil {
		return "", err
	}
	text, err := d.model.Continue(ctx, d.tok, ids, d.options, d.until, show)
	if err == nil {
		d.messages = append(d.messages, chat.NewMessage(chat.Assistant, text))
	}
	return text, err
}
