package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/client"
)

// Options configures how a plugin is run. The zero value is ready to use.
type Options struct {
	// Logger receives the plugin's log entries and output; nil discards them.
	Logger hclog.Logger
	// StartTimeout limits the time without progress, as processor time or output, until the plugin
	// has returned its description; 0 means the value of CAGE_PLUGIN_TIMEOUT or, if that is not set,
	// DefaultTimeout.
	StartTimeout time.Duration
	// CallTimeout limits the same in each call. Its default is the same as for StartTimeout.
	CallTimeout time.Duration
	// SHA256 is the hash in hexadecimal that the executable must have, or "" for any.
	SHA256 string
}

func (o Options) withDefaults() (Options, error) {
	o.Logger = cmp.Or(o.Logger, hclog.NewNullLogger())
	usual := DefaultTimeout
	if text := os.Getenv(TimeoutVariable); text != "" {
		var err error
		if usual, err = time.ParseDuration(text); err != nil || usual < time.Second {
			return o, failure(ErrStart, "%s is %q: want a time of at least 1s, such as 30s or 2m",
				TimeoutVariable, text)
		}
	}
	o.StartTimeout = cmp.Or(o.StartTimeout, usual)
	o.CallTimeout = cmp.Or(o.CallTimeout, usual)
	return o, nil
}

// Start runs an executable as a plugin of the given kind, or of any kind if it is "", and requests
// its description. The plugin is stopped when ctx is canceled, the client is closed or this process
// ends. Errors are [*Error].
func Start(ctx context.Context, exe Executable, kind sdk.Kind, opts Options) (*Client, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, exe.complete(err)
	}
	if exe.Path, err = filepath.Abs(exe.Path); err != nil {
		return nil, exe.complete(&Error{Kind: ErrNotFound, Err: err})
	}
	sum, err := checksum(exe.Path, opts.SHA256)
	if err != nil {
		return nil, exe.complete(err)
	}
	c := &Client{
		exe: exe, kind: kind, sum: sum, opts: opts,
		launch: &launcher{executable: exe.Path, env: environment(opts.Logger),
			logger: opts.Logger.Named(filepath.Base(exe.Name))},
	}
	if err := c.start(ctx); err != nil {
		c.Close()
		return nil, exe.complete(err)
	}
	return c, nil
}

// start runs the plugin and requests its description. All of its calls return when the process
// ends, so that it suffices to kill the process when it makes no progress.
func (c *Client) start(ctx context.Context) *Error {
	c.release = context.AfterFunc(ctx, func() {
		c.launch.fail(failure(context.Cause(ctx), "stopped: %w", context.Cause(ctx)))
	})
	defer c.launch.watch(c.opts.StartTimeout, func(reason string) {
		c.launch.fail(failure(ErrTimeout, "was not ready within %s%s", reason, moreTime))
	})()
	// The path of a socket is limited to about 100 bytes, of which go-plugin's names take 40;
	// temporary directories can be longer (TestTemporaryDirectory).
	sockets := os.TempDir()
	if len(sockets) > 60 {
		sockets = "/tmp"
	}
	config := &goplugin.ClientConfig{
		HandshakeConfig:  client.Handshake(),
		VersionedPlugins: client.Plugins(),
		RunnerFunc:       c.launch.run,
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		Logger:           hclog.NewNullLogger(), // go-plugin would repeat what the host logs
		StartTimeout:     math.MaxInt64,         // see watch
		SkipHostEnv:      true,
		AutoMTLS:         true,
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: sockets},
		// An idle connection must not be closed, because it cannot be reopened.
		GRPCDialOptions: []grpc.DialOption{grpc.WithIdleTimeout(0)},
	}
	c.gp = goplugin.NewClient(config)
	err := c.connect(ctx, config)
	if err == nil {
		// There are no further connections. Remove the directory now, so that it is not left behind
		// if this process is killed.
		_ = os.RemoveAll(c.launch.socketDir)
		return nil
	}
	return c.startError(err)
}

// connect starts the process and requests its description. The connection is only encrypted if the
// plugin has sent a certificate.
func (c *Client) connect(ctx context.Context, config *goplugin.ClientConfig) error {
	if _, err := c.gp.Start(); err != nil {
		return err
	}
	if !c.launch.certified.Load() {
		config.TLSConfig = nil
	}
	protocol, err := c.gp.Client()
	if err != nil {
		return err
	}
	quantizer, err := protocol.Dispense(string(sdk.KindQuantizer))
	if err != nil {
		return err
	}
	optimizer, err := protocol.Dispense(string(sdk.KindOptimizer))
	if err != nil {
		return err
	}
	c.quantizer, c.optimizer = quantizer.(*client.Quantizer), optimizer.(*client.Optimizer)
	return c.describe(ctx)
}

// startError returns the cause of a failed start that was passed to launcher.fail or, if there is
// none, an error that wraps err. It adds the plugin's last output.
func (c *Client) startError(err error) *Error {
	p, cause := c.launch.current()
	if cause == nil {
		if typed, ok := errors.AsType[*Error](err); ok {
			cause = typed
		} else {
			cause = failure(ErrStart, "did not start: %w", err)
		}
	}
	if p == nil {
		return cause
	}
	p.kill()
	<-p.exited
	out := *cause // made before the last lines of output arrived
	out.Output = p.output.lines()
	if out.Kind == ErrShutdown { // before it was ready
		out.Kind = ErrStart
	}
	return &out
}

// environment returns the environment for a plugin: that of this process, without the variables of
// go-plugin, and the variables of the protocol.
func environment(logger hclog.Logger) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "PLUGIN_")
	})
	// hclog.NoLevel is 0, and the protocol has no level for hclog.Off.
	level := min(cmp.Or(logger.GetLevel(), hclog.Info), hclog.Error)
	return append(env, client.Environment(level.String())...)
}

func (e Executable) complete(err error) error {
	typed, ok := errors.AsType[*Error](err)
	if !ok {
		return fmt.Errorf("plugin %s: %w", e.Name, err)
	}
	out := *typed
	out.Plugin, out.Path = e.Name, e.Path
	return &out
}

// DefaultTimeout is the default for the time limits in [Options].
const DefaultTimeout = 10 * time.Second

// TimeoutVariable is an environment variable that overrides [DefaultTimeout], for example with 30s
// or 2m. Plugins that import a large library from a network disk may need more than the default.
const TimeoutVariable = "CAGE_PLUGIN_TIMEOUT"

// moreTime is appended to the messages of timeouts.
const moreTime = " (" + TimeoutVariable + "=1m allows a minute)"

// describe requests the plugin's description for c.kind, or for all kinds if that is "".
func (c *Client) describe(ctx context.Context) error {
	ask := map[sdk.Kind]func(context.Context) (sdk.Description, error){
		sdk.KindQuantizer: c.quantizer.Describe,
		sdk.KindOptimizer: c.optimizer.Describe,
	}
	kinds := []sdk.Kind{sdk.KindQuantizer, sdk.KindOptimizer}
	if c.kind == sdk.KindOptimizer {
		slices.Reverse(kinds)
	}
	c.info = map[sdk.Kind]sdk.Description{}
	var wrong error
	var serves sdk.Kind // a kind that it serves, even if its description is invalid
	for _, kind := range kinds {
		info, err := ask[kind](ctx)
		if status.Code(err) != codes.Unimplemented {
			serves = kind
		}
		switch {
		case err == nil:
			c.info[kind] = info
		case status.Code(err) == codes.Unimplemented: // it does not serve this kind
		case kind == c.kind || c.kind == "":
			wrong = errors.Join(wrong, c.explain(ctx, ctx, err))
		}
		if kind == c.kind && serves == kind {
			break // errors of the other kind do not matter
		}
	}
	if wrong != nil {
		return wrong
	}
	if _, ok := c.info[c.kind]; ok || c.kind == "" && len(c.info) > 0 {
		return nil
	}
	if serves != "" {
		return failure(ErrKind, "is of the kind %s, but a plugin of the kind %s is needed here",
			serves, c.kind)
	}
	return failure(ErrProtocol, "serves neither a quantizer nor an optimizer")
}

// Executable is the executable file of a plugin.
type Executable struct {
	// Name is the name or path that the user gave.
	Name string
	// Path is the absolute path of the executable file.
	Path string
}

// checksum returns the hash of an executable. It fails if the hash differs from a pinned one.
func checksum(path, pinned string) (string, error) {
	sum, err := hashOf(path)
	if err != nil {
		return "", &Error{Kind: ErrNotFound, Err: err}
	}
	if pinned != "" && !strings.EqualFold(pinned, sum) {
		return "", failure(ErrChecksum, "its SHA-256 is %s, but %s is pinned: use the plugin with that "+
			"hash, or change sha256 in the TOML file", sum, pinned)
	}
	return sum, nil
}
