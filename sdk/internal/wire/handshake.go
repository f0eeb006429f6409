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
	// ProtocolVersion counts changes that make the services or messages of one
	// side unreadable for the other. It is exchanged in the handshake.
	ProtocolVersion = 1
	// APIVersion counts changes in the meaning of messages, such as new
	// operations. It is negotiated by Describe.
	APIVersion = 1

	// CookieKey and CookieValue are the environment variable that tells a plugin
	// that it was started by a host, not by a person. The value is not a secret.
	CookieKey   = "CAGE_PLUGIN"
	CookieValue = "5a1f8d0c2b7e4e36a9c3d471f06be928"

	// ParentPipeKey set to ParentPipeStdin means that standard input is a pipe that
	// the host holds open as long as it lives.
	ParentPipeKey   = "CAGE_PLUGIN_LIFELINE"
	ParentPipeStdin = "stdin"

	// LogKey is the environment variable with the lowest level that the plugin should
	// log: trace, debug, info, warn or error.
	LogKey = "CAGE_PLUGIN_LOG"

	// OpaqueCapability is the host capability that an opaque optimizer requires.
	OpaqueCapability = "opaque"
	// SearchCapability is the host capability that a Searcher requires.
	SearchCapability = "search"

	// MaxMessage is the largest message that either side accepts, in bytes. It
	// leaves room for the largest constants that a program may hold.
	MaxMessage = 64 << 20
)
