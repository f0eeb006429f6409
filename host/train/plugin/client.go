// Package plugin finds, starts, queries and stops plugins, which run in their own processes.
//
// Plugins are third-party code. They may crash, hang, be stopped, print garbage or return invalid
// programs. Any failure is reported as a single [Error] within the time limits. No plugin outlives
// the host. Programs that plugins return are validated here but executed elsewhere.
//
// Package sdk/client implements the protocol, which uses hashicorp/go-plugin. Connections use TLS
// with temporary certificates of both sides, which plugins in other languages may omit. For the
// permissions of plugins and the defenses against hostile ones, see docs/reference/security.md.
package plugin

import (
	"context"
	"errors"
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

// If a plugin does not exit when it is asked to, Close closes the plugin's standard input after
// cutAfter and kills the process after killAfter, both measured from the request.
const (
	cutAfter  = 300 * time.Millisecond
	killAfter = time.Second
)

// exitWait is the time limit for a process to end after its connection was lost.
const exitWait = time.Second

// Client is a running plugin. It is safe for concurrent use.
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

// Share returns a client for the same process. Closing it does not stop the process.
func (c *Client) Share() *Client {
	return &Client{exe: c.exe, kind: c.kind, sum: c.sum, opts: c.opts, launch: c.launch,
		quantizer: c.quantizer, optimizer: c.optimizer, info: c.info, shared: true}
}

// Path returns the path of the running executable.
func (c *Client) Path() string { return c.exe.Path }

// SHA256 returns the hash of the executable in hexadecimal, computed just before the plugin was
// started. That of a script covers its modules; see hashOf.
func (c *Client) SHA256() string { return c.sum }

// Kind returns the kind of plugin that was passed to [Start].
func (c *Client) Kind() sdk.Kind { return c.kind }

// PID returns the process ID of the plugin.
func (c *Client) PID() int {
	p, _ := c.launch.current()
	return p.pid()
}

// Restart starts another process with the same executable and options, independent of this client.
// It fails if the executable has changed.
func (c *Client) Restart(ctx context.Context) (*Client, error) {
	opts := c.opts
	opts.SHA256 = c.sum
	next, err := Start(ctx, c.exe, c.kind, opts)
	if errors.Is(err, ErrChecksum) {
		err = c.exe.complete(failure(ErrChecksum, "the executable, or a module of the script, has "+
			"changed since the run started: put back what has the SHA-256 %s", c.sum))
	}
	return next, err
}

// Description returns the plugin's description, which is valid.
func (c *Client) Description() sdk.Description { return c.info[c.kind] }

// Resolve checks parameters against the plugin's description and fills in the defaults. Errors are
// [*sdk.ParameterError], joined if there are several.
func (c *Client) Resolve(given map[string]any) (sdk.Values, error) {
	return c.Description().Resolve(given)
}

// Done returns a channel that is closed when the plugin's process has ended.
func (c *Client) Done() <-chan struct{} {
	p, _ := c.launch.current()
	return p.exited
}

// Quantize requests a site's programs from a quantizer. The returned programs are valid and within
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

// Program requests a tensor's programs from an optimizer. The returned programs are valid and
// within [spec.TensorLimits]. If the optimizer does not accept the tensor, it returns no programs.
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

// Close stops the plugin, unless the client was returned by Share, and waits for the process to
// end, at most a little more than a second. It may be called more than once.
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

// callWithin is like call but with the given limit of [launcher.watch]. moreTime is appended to
// timeout messages.
func (c *Client) callWithin(ctx context.Context, limit time.Duration, moreTime, site string,
	f func(context.Context) error) error {
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer c.launch.watch(limit, func(reason string) {
		cancel(failure(ErrTimeout, "did not answer within %s%s", reason, moreTime))
	})()
	err := f(limited)
	if err == nil {
		return nil
	}
	typed := c.explain(ctx, limited, err)
	typed.Site = site
	return c.exe.complete(typed)
}

// explain classifies a failure. limited is ctx, or it was canceled because of a time limit.
func (c *Client) explain(ctx, limited context.Context, err error) *Error {
	refusal, refused := errors.AsType[*sdk.Refusal](err)
	timeout, late := errors.AsType[*Error](context.Cause(limited))
	_, bounded := ctx.Deadline()
	switch code := status.Code(err); {
	case ctx.Err() != nil:
		return failure(ctx.Err(), "%w", ctx.Err())
	case code == codes.DeadlineExceeded && bounded:
		// The plugin's side may notice the caller's deadline before ctx does.
		return failure(context.DeadlineExceeded, "%w", context.DeadlineExceeded)
	case late && code == codes.Canceled:
		return c.withOutput(timeout)
	case errors.Is(err, client.ErrVersion):
		return failure(ErrVersion, "%w", err)
	case errors.Is(err, client.ErrAnswer):
		return failure(ErrProtocol, "%w", err)
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
