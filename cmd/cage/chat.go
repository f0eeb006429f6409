package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/data/chat"
	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/model/generate"
	"github.com/cage-qat/cage/host/train/console"
)

func newChat() *cobra.Command {
	var system, message, template string
	var quantizer quantizerFlags
	o, opts := trained.Options{Generate: 1, NoData: true}, generate.Options{}
	cmd := &cobra.Command{
		Use:   "chat RUN|CHECKPOINT",
		Short: "Chat with a model that was trained on conversations",
		Long: `Chat with a model that was trained on conversations, in its own chat template. Each line
of standard input is a message; the answer is printed token by token. The end of the
input ends the conversation. If a conversation is longer than the context, the model
sees only its last part. With --message there is one message and one answer, which
--json prints as JSON. The model can also be the directory of a Hugging Face checkpoint.`,
	}
	modelFlags(cmd, &o.Step, &o.Context, samplingFlags...)
	flags := cmd.Flags()
	flags.StringVar(&system, "system", "", "`TEXT` of a system message before the conversation")
	flags.StringVar(&message, "message", "", "`TEXT` of the only message")
	flags.StringVar(&template, "template", "", "chat template: "+
		strings.Join(chat.BuiltIn(), ", ")+" or a `FILE`; default: the model's own")
	addSamplingFlags(flags, &opts)
	quantizer.addReplacement(flags)
	return withOutput(cmd, func(cmd *cobra.Command, args []string) (*output, error) {
		single := cmd.Flags().Changed("message")
		if wantsJSON(cmd) && !single {
			return nil, usagef("--json prints a single answer: want --message TEXT with it")
		}
		err := checkSampling(opts)
		if err != nil {
			return nil, err
		}
		if o.Quantizer, err = quantizer.replacement(); err != nil {
			return nil, err
		}
		model, err := openRun(cmd, args[0], o)
		if err != nil {
			return nil, err
		}
		defer model.Close()
		d, err := trained.NewDialogue(model, template, system, opts)
		if err != nil {
			return nil, err
		}
		if !single {
			return nil, converse(cmd, d)
		}
		text, err := d.Answer(cmd.Context(), message, textPrinter(cmd))
		if err != nil {
			return nil, err
		}
		result := map[string]any{
			"run": args[0], "step": model.Step(), "message": message, "answer": text}
		return textOutput(result, "\n"), nil
	})
}

func converse(cmd *cobra.Command, d *trained.Dialogue) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	terminal := console.Width(unescaped(out)) != nil
	lines := linesOf(ctx, cmd.InOrStdin())
	for {
		if terminal {
			fmt.Fprint(out, "> ")
		}
		var next inputLine
		select {
		case next = <-lines:
		case <-ctx.Done():
			if terminal {
				fmt.Fprintln(out)
			}
			return ctx.Err()
		}
		switch {
		case errors.Is(next.err, io.EOF):
			return nil
		case next.err != nil:
			return next.err
		case strings.TrimSpace(next.text) == "":
			continue
		}
		if _, err := d.Answer(ctx, next.text, textPrinter(cmd)); err != nil {
			return err
		}
		fmt.Fprintln(out)
	}
}

// maxMessage is the maximum length of an input line, in bytes.
const maxMessage = 1 << 20

type inputLine struct {
	text string
	err  error
}

// linesOf reads lines in a separate goroutine. A read that is pending when ctx ends blocks until
// the process exits, because a read from a terminal cannot be interrupted.
func linesOf(ctx context.Context, in io.Reader) <-chan inputLine {
	lines := make(chan inputLine)
	go func() {
		from := bufio.NewScanner(in)
		from.Buffer(nil, maxMessage)
		for {
			next := inputLine{}
			if from.Scan() {
				next.text = from.Text()
			} else if next.err = cmp.Or(from.Err(), io.EOF); errors.Is(next.err, bufio.ErrTooLong) {
				next.err = fmt.Errorf("a line of standard input is longer than %d bytes: "+
					"want a shorter message", maxMessage)
			}
			select {
			case lines <- next:
			case <-ctx.Done():
				return
			}
			if next.err != nil {
				return
			}
		}
	}()
	return lines
}
