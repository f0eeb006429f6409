// Package plugin finds, starts, queries and stops plugins. It is the host's side of the
// process boundary.
//
// A plugin is third-party code. It may crash, hang, be stopped, print garbage or answer with an
// ill-typed program: the result is always one [Error] within the time limits. No plugin outlives
// the host. This package checks the plugins' answers, and does not use them.
//
// Package sdk/client implements the protocol, over hashicorp/go-plugin. Both sides create a
// certificate for the connection and use TLS, which plugins in other languages may omit. See
// docs/reference/security.md for the permissions of plugins, and the defenses against hostile ones.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/client"
	"github.com/cage-qat/cage/sdk/spec"
)

// When a plugin is closed and does not exit, its standard input is closed after cutAfter, and it is
// killed after killAfter.
const (
	cutAfter  = 300 * time.Millisecond
	killAfter = time.Second
)

// exitWait is the time to wait, after the end of a connection, for the end of its process.
const exitWait = time.Second

// Client is a running plugin. Its methods may be called concurrently.
type Client struct {
	exe    Executable
	kind   sdk.Kind
	sum    string
	opts   Options
	launch *launcher
	gp     *goplugin.Client

	quantizer *client.Quantizer
	optimizer *client.Optimizer
	info      map[sdk.Kind]sdk.Description

	release   func() bool
	shared    bool // Close leaves the process to another client
	closeOnce sync.Once
	closed    atomic.Bool
}

// Share returns a client of the same process whose Close leaves the process running.
func (c *Client) Share() *Client {
	return &Client{exe: c.exe, kind: c.kind, sum: c.sum, opts: c.opts, launch: c.launch,
		quantizer: c.quantizer, optimizer: c.optimizer, info: c.info, shared: true}
}

// Path returns the path of the running executable.
func (c *Client) Path() string { return c.exe.Path }

// SHA256 returns the hash of the executable in hexadecimal, computed just before it was
// started. For a script it covers the script alone, not its interpreter.
func (c *Client) SHA256() string { return c.sum }

// Kind returns the kind for which the plugin was started.
func (c *Client) Kind() sdk.Kind { return c.kind }

// PID returns the process ID of the plugin.
func (c *Client) PID() int {
	p, _ := c.launch.current()
	return p.pid()
}

// Restart starts another process of the same executable, which must not have changed, with the same
// options. This client is not affected.
func (c *Client) Restart(ctx context.Context) (*Client, error) {
	opts := c.opts
	opts.SHA256 = c.sum
	return Start(ctx, c.exe, c.kind, opts)
}

// Description returns the plugin's description; it has passed its Check.
func (c *Client) Description() sdk.Description { return c.info[c.kind] }

// Resolve checks settings against the plugin's declaration and fills in the defaults.
// Errors are [*sdk.ParameterError], joined if there are several.
func (c *Client) Resolve(given map[string]any) (sdk.Values, error) {
	return c.Description().Resolve(given)
}

// Done returns a channel that is closed when the plugin's process has ended.
func (c *Client) Done() <-chan struct{} {
	p, _ := c.launch.current()
	return p.exited
}

// Quantize requests the programs of a site from a quantizer. They are valid, and within
// [spec.SiteLimits]. Errors are [*Error].
func (c *Client) Quantize(ctx context.Context, site sdk.Site) (out spec.Quantizer, err error) {
	if c.kind != sdk.KindQuantizer {
		return out, c.exe.complete(failure(ErrKind, "was not started as a quantizer"))
	}
	err = c.call(ctx, site.Name, func(ctx context.Context) error {
		out, err = c.quantizer.Quantize(ctx, site, spec.SiteLimits(site.Shape))
		return err
	})
	return out, err
}

// Program requests the programs of a tensor from an optimizer; see [Client.Quantize]. The limits
// are [spec.TensorLimits]. If the optimizer does not accept the tensor, there are no programs.
func (c *Client) Program(ctx context.Context, tensor sdk.Tensor) (out spec.Optimizer, err error) {
	if c.kind != sdk.KindOptimizer {
		return out, c.exe.complete(failure(ErrKind, "was not started as an optimizer"))
	}
	err = c.call(ctx, tensor.Name, func(ctx context.Context) error {
		out, err = c.optimizer.Program(ctx, tensor, spec.TensorLimits(tensor.Shape))
		return err
	})
	return out, err
}

// Close stops the plugin, unless the client comes from Share, and waits until it has ended,
// a little more than a second at most. It may be called several times.
func (c *Client) Close() {
	c.closeOnce.Do(func() {
		c.closed.Store(true)
		if c.shared {
			return
		}
		if c.release != nil {
			c.release()
		}
		if p, _ := c.launch.current(); p != nil {
			defer time.AfterFunc(cutAfter, func() { _ = p.parentPipe.Close() }).Stop()
			defer time.AfterFunc(killAfter, p.kill).Stop()
		}
		if c.gp != nil {
			c.gp.Kill() // ends when the process does
		}
		if p, _ := c.launch.current(); p != nil {
			<-p.exited
		}
		if c.launch.socketDir != "" {
			_ = os.RemoveAll(c.launch.socketDir)
		}
	})
}

func (c *Client) call(ctx context.Context, site string, f func(context.Context) error) error {
	return c.callWithin(ctx, c.opts.CallTimeout, moreTime, site, f)
}

// callWithin is call with the given time limit; moreTime is appended to the message of a timeout.
func (c *Client) callWithin(ctx context.Context, limit time.Duration, moreTime, site string,
	f func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := f(limited)
	if err == nil {
		return nil
	}
	typed := c.explain(ctx, limited, err, fmt.Sprint(limit, moreTime))
	typed.Site = site
	return c.exe.complete(typed)
}

// explain classifies a failure. limited is ctx with the time limit of the call, and inWords is
// that limit for the message.
func (c *Client) explain(ctx, limited context.Context, err error, inWords string) *Error {
	refusal, refused := errors.AsType[*sdk.Refusal](err)
	deadline, bounded := ctx.Deadline()
	limit, _ := limited.Deadline()
	switch code := status.Code(err); {
	case ctx.Err() != nil:
		return failure(ctx.Err(), "%w", ctx.Err())
	case code == codes.DeadlineExceeded && bounded && !limit.Before(deadline):
		// The plugin's side may notice the caller's deadline before ctx does.
		return failure(context.DeadlineExceeded, "%w", context.DeadlineExceeded)
	case errors.Is(err, client.ErrVersion):
		return failure(ErrVersion, "%w", err)
	case errors.Is(err, client.ErrAnswer):
		return failure(ErrProtocol, "%w", err)
	case code == codes.DeadlineExceeded:
		return c.withOutput(failure(ErrTimeout, "did not answer within %s", inWords))
	case code == codes.Unavailable || code == codes.Canceled:
		return c.ended(err)
	case code == codes.ResourceExhausted:
		return failure(ErrProtocol, "a message is too large: %s", status.Convert(err).Message())
	case code == codes.Unimplemented:
		return failure(ErrKind, "does not serve the call: %s", status.Convert(err).Message())
	case refused:
		return failure(ErrRefused, "%w", refusal)
	default: // its output may hold a stack trace, whatever its language
		return c.withOutput(failure(ErrFailed, "%w", err))
	}
}

func (c *Client) ended(err error) *Error {
	if c.closed.Load() {
		return failure(ErrShutdown, "was closed")
	}
	p, cause := c.launch.current()
	if cause != nil {
		return failure(ErrShutdown, "%w", cause.Err)
	}
	select {
	case <-p.exited:
		return c.withOutput(failure(ErrShutdown, "%s", p.ending()))
	case <-time.After(exitWait):
		what := "closed its connection"
		if len(c.info) == 0 { // it has never answered
			what = "cannot be reached at the address of its handshake"
		}
		return failure(ErrShutdown, "%s: %s", what, status.Convert(err).Message())
	}
}

func (c *Client) withOutput(e *Error) *Error {
	if p, _ := c.launch.current(); p != nil {
		e.Output = p.output.lines()
	}
	return e
}
