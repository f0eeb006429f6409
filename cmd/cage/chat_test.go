package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/deploy/trained"
)

// startConversation starts a conversation that never uses the model.
func startConversation(ctx context.Context, in io.Reader) <-chan error {
	cmd := &cobra.Command{}
	cmd.SetContext(ctx)
	cmd.SetIn(in)
	cmd.SetOut(io.Discard)
	ended := make(chan error, 1)
	go func() { ended <- converse(cmd, &trained.Dialogue{}) }()
	return ended
}

// TestChatIsInterrupted checks that a conversation can be interrupted while it waits for a message.
func TestChatIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	in, typist := io.Pipe()
	defer typist.Close()
	ended := startConversation(ctx, in)
	if _, err := typist.Write([]byte("\n")); err != nil { // an empty line asks nothing
		t.Fatal(err)
	}
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("it ends with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it goes on waiting")
	}
}

// TestInputOfAChat checks that a chat ends with its input, and that too long a line is an error.
func TestInputOfAChat(t *testing.T) {
	if err := <-startConversation(t.Context(), strings.NewReader("\n  \n")); err != nil {
		t.Error(err)
	}
	err := <-startConversation(t.Context(), strings.NewReader("\n"+strings.Repeat("x", 1<<20)+"\n"))
	if err == nil || !strings.Contains(err.Error(),
		"longer than 1048576 bytes: want a shorter message") {
		t.Errorf("a long line: %v", err)
	}
	broken := errors.New("broken")
	if err := <-startConversation(t.Context(),
		io.MultiReader(strings.NewReader("\n"), failing{broken})); !errors.Is(err, broken) {
		t.Errorf("an input that cannot be read: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
