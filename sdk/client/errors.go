package client

import (
	"errors"
	"fmt"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/internal/wire"
)

// Errors of this package; test for them with errors.Is. A plugin's refusal is a
// [*sdk.Refusal], as it is where the plugin's code runs.
var (
	// ErrAnswer is an answer that breaks the protocol: undecodable, incomplete, or
	// with an invalid program.
	ErrAnswer = errors.New("the answer breaks the plugin protocol")
	// ErrVersion is a plugin that does not fit this host: one of the two is too old for the other.
	ErrVersion = errors.New("the plugin and this host do not go together")
)

// Mistake is a failure of the plugin's own code: a panic, a program that cannot be
// built, or any error other than a refusal.
type Mistake struct{ Text string }

// Error returns the plugin's message.
func (e *Mistake) Error() string { return e.Text }

// fromStatus gives an error that comes from the plugin its Go type; every other
// error stays as it is.
func fromStatus(err error) error {
	reason, text, ok := wire.FromStatus(err)
	switch {
	case !ok:
		return err
	case reason == wire.Refused:
		return &sdk.Refusal{Err: errors.New(text)}
	case reason == wire.Unreadable:
		return fmt.Errorf("%w: the plugin cannot read what it is asked: %s", ErrVersion, text)
	default:
		return &Mistake{text}
	}
}
