package client

import (
	"context"
	"errors"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/internal/wire"
	pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"
)

// The versions that this host speaks, and the size of the messages that it accepts.
const (
	// ProtocolVersion is exchanged in the handshake: sides with different versions cannot
	// read each other's messages.
	ProtocolVersion = wire.ProtocolVersion
	// APIVersion is negotiated by Describe: it counts changes in the meaning of
	// messages, such as new operations.
	APIVersion = wire.APIVersion
	// MaxMessage is the size of the largest message, in bytes.
	MaxMessage = wire.MaxMessage
)

// Handshake returns the cookie by which a plugin knows that a host has started it.
func Handshake() goplugin.HandshakeConfig {
	return goplugin.HandshakeConfig{MagicCookieKey: wire.CookieKey, MagicCookieValue: wire.CookieValue}
}

// Environment returns what a host adds to a plugin's environment, besides what go-plugin
// adds. The host must hold a pipe open on the plugin's standard input as long as it wants
// the plugin to live. logLevel is trace, debug, info, warn or error.
func Environment(logLevel string) []string {
	return []string{wire.LifelineKey + "=" + wire.LifelineStdin, wire.LogKey + "=" + logLevel}
}

// Plugins lists what can be dispensed for each protocol version: a [*Quantizer] as
// "quantizer" and an [*Optimizer] as "optimizer".
func Plugins() map[int]goplugin.PluginSet {
	return map[int]goplugin.PluginSet{ProtocolVersion: {
		string(sdk.KindQuantizer): &dispenser{client: func(c grpc.ClientConnInterface) any { return NewQuantizer(c) }},
		string(sdk.KindOptimizer): &dispenser{client: func(c grpc.ClientConnInterface) any { return NewOptimizer(c) }},
	}}
}

// NewQuantizer returns a client for the quantizer at the other end of conn.
func NewQuantizer(conn grpc.ClientConnInterface) *Quantizer {
	return &Quantizer{pb.NewQuantizerClient(conn)}
}

// NewOptimizer returns a client for the optimizer at the other end of conn.
func NewOptimizer(conn grpc.ClientConnInterface) *Optimizer {
	return &Optimizer{pb.NewOptimizerClient(conn)}
}

// dispenser is the host's half of a go-plugin plugin; the other half lives in
// package sdk.
type dispenser struct {
	goplugin.NetRPCUnsupportedPlugin
	client func(grpc.ClientConnInterface) any
}

func (d *dispenser) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return d.client(conn), nil
}

func (*dispenser) GRPCServer(*goplugin.GRPCBroker, *grpc.Server) error {
	return errors.New("this is the host's side")
}
