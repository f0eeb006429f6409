package sdk

import (
	"fmt"
	"os"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/cage-qat/cage/sdk/internal/wire"
)

// ServeQuantizer is the main function of a quantizer plugin. It returns when the host is
// done with the plugin. If the host is gone, it does not return but ends the process.
//
// Print nothing to standard output before the call: the host reads the first line there
// as the handshake. Afterwards, whatever the plugin prints, on either stream, goes to the
// host's log. So does what it logs with log/slog, with level and attributes.
//
// When a person starts the plugin, it says what it is and exits;
// with --describe it prints its description and exits.
func ServeQuantizer(q Quantizer) { serve(q, nil) }

// ServeOptimizer is the main function of an optimizer plugin; see [ServeQuantizer].
func ServeOptimizer(o Optimizer) { serve(nil, o) }

// Serve is the main function of a plugin that is both a quantizer and an optimizer: the
// host asks for the kind that it needs. See [ServeQuantizer].
func Serve(q Quantizer, o Optimizer) { serve(q, o) }

func serve(q Quantizer, o Optimizer) {
	descriptions, err := describe(q, o)
	if len(os.Args) > 1 && os.Args[1] == describeFlag || os.Getenv(wire.CookieKey) != wire.CookieValue {
		os.Exit(byHand(os.Stdout, os.Stderr, os.Args, descriptions, err))
	}
	output := os.Stderr // go-plugin replaces the variable
	logger := newLogger(output)
	if err != nil { // the host reports it better when it asks for the description
		logger.Warn("the description is not valid", "error", err)
	}
	watchHost()
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig:  goplugin.HandshakeConfig{MagicCookieKey: wire.CookieKey, MagicCookieValue: wire.CookieValue},
		VersionedPlugins: map[int]goplugin.PluginSet{wire.ProtocolVersion: servers(q, o)},
		GRPCServer:       newServer(output, logger),
		Logger:           logger.Named("go-plugin"),
	})
}

// describe collects and checks the descriptions of what is served. The error says what
// is wrong with one of them, or that Describe panicked.
func describe(q Quantizer, o Optimizer) (out map[Kind]Description, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("Describe: panic: %v%s", r, panicSite())
		}
	}()
	out = map[Kind]Description{}
	if q != nil {
		out[KindQuantizer] = q.Describe()
	}
	if o != nil {
		out[KindOptimizer] = o.Describe()
	}
	for _, d := range out {
		if err := d.Check(); err != nil {
			return out, err
		}
	}
	return out, nil
}

// newServer makes the gRPC server with the limits of the protocol.
func newServer(output *os.File, logger hclog.Logger) func([]grpc.ServerOption) *grpc.Server {
	return func(opts []grpc.ServerOption) *grpc.Server {
		return grpc.NewServer(append(opts,
			grpc.MaxRecvMsgSize(wire.MaxMessage),
			grpc.MaxSendMsgSize(wire.MaxMessage),
			grpc.UnaryInterceptor(guard(output, logger)),
		)...)
	}
}
