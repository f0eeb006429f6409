package wire

import (
	"context"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
)

// Plugin adapts one kind of plugin to go-plugin. The plugin's process sets Register, the host
// NewClient.
type Plugin struct {
	goplugin.NetRPCUnsupportedPlugin
	Register  func(*grpc.Server)
	NewClient func(grpc.ClientConnInterface) any
}

// GRPCServer implements [goplugin.GRPCPlugin].
func (p Plugin) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	p.Register(s)
	return nil
}

// GRPCClient implements [goplugin.GRPCPlugin].
func (p Plugin) GRPCClient(
	_ context.Context, _ *goplugin.GRPCBroker, conn *grpc.ClientConn,
) (any, error) {
	return p.NewClient(conn), nil
}

// Constants that both sides must agree on to communicate; docs/reference/plugin-protocol.md
// explains each.
const (
	// ProtocolVersion counts changes that make messages unreadable for the other side. It is
	// exchanged in the handshake.
	ProtocolVersion = 2
	// APIVersion counts changes in the meaning of messages, such as new
	// operations. It is negotiated by Describe.
	APIVersion = 1

	// CookieKey and CookieValue are the name and value of the environment variable that tells a
	// plugin that a host started it. The value is not a secret.
	CookieKey   = "CAGE_PLUGIN"
	CookieValue = "5a1f8d0c2b7e4e36a9c3d471f06be928"

	// ParentPipeKey set to ParentPipeStdin means that standard input is a pipe that
	// the host holds open as long as it lives.
	ParentPipeKey   = "CAGE_PLUGIN_LIFELINE"
	ParentPipeStdin = "stdin"

	// LogKey is the environment variable with the lowest level that the plugin should
	// log: trace, debug, info, warn or error.
	LogKey = "CAGE_PLUGIN_LOG"

	// The capabilities of a host that opaque optimizers and Searchers require.
	OpaqueCapability = "opaque"
	SearchCapability = "search"

	// MaxMessage is the largest message that either side accepts, in bytes. It
	// leaves room for the largest constants that a program may hold.
	MaxMessage = 64 << 20
)
